//! For the tests of crates that need an admission chain.

use std::sync::Arc;

use auth::authz::AlwaysAllow;
use meta::{ApiError, GroupVersionKind, GroupVersionResource, Value, selector::LabelSelector};

use crate::{Cluster, Freshness, Pinned, ServedObjects};

/// A cluster without objects, where every user may do everything.
pub fn empty_cluster() -> Cluster {
    Cluster {
        objects: Box::new(NoObjects),
        authorizer: Arc::new(AlwaysAllow),
        dynamic_admission: Arc::default(),
    }
}

struct NoObjects;

impl ServedObjects for NoObjects {
    fn get<'a>(
        &'a self,
        _resource: &'a GroupVersionResource,
        _namespace: &'a str,
        _name: &'a str,
        _freshness: Freshness,
    ) -> Pinned<'a, Result<Option<Value>, ApiError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn list<'a>(
        &'a self,
        _resource: &'a GroupVersionResource,
        _namespace: &'a str,
        _selector: &'a LabelSelector,
    ) -> Pinned<'a, Result<Vec<Value>, ApiError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn resource_of(&self, _kind: &GroupVersionKind) -> Option<(GroupVersionResource, bool)> {
        None
    }

    fn equivalents(
        &self,
        _resource: &GroupVersionResource,
    ) -> Vec<(GroupVersionResource, GroupVersionKind)> {
        Vec::new()
    }

    fn convert<'a>(
        &'a self,
        _object: Value,
        _from: &'a GroupVersionResource,
        to: &'a GroupVersionResource,
    ) -> Pinned<'a, Result<Value, ApiError>> {
        let unknown = ApiError::internal(format!("{} is not served", to.resource));
        Box::pin(std::future::ready(Err(unknown)))
    }

    fn encode(
        &self,
        _resource: &GroupVersionResource,
        _kind: &GroupVersionKind,
        object: &Value,
    ) -> Vec<u8> {
        meta::json::to_string(object).into_bytes()
    }

    fn decode_changed(
        &self,
        _resource: &GroupVersionResource,
        _kind: &GroupVersionKind,
        json: &[u8],
    ) -> Result<Value, ApiError> {
        crate::versioned::decode(json)
    }

    fn merge_applied(
        &self,
        _resource: &GroupVersionResource,
        kind: &GroupVersionKind,
        _live: &Value,
        _configuration: &Value,
    ) -> Result<Value, String> {
        Err(format!("{} is not served", kind.kind))
    }
}
