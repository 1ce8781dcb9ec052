//! For the tests of this crate, and of crates that need an admission chain.

use std::sync::Arc;

use auth::authz::AlwaysAllow;
use meta::{ApiError, GroupVersionKind, GroupVersionResource, Str, Value, selector::LabelSelector};

use crate::{BoxFuture, Cluster, Freshness, ServedObjects, resources};

/// A cluster without objects, where every user may do everything.
pub fn empty_cluster() -> Cluster {
    Cluster {
        objects: Box::new(FakeObjects::default()),
        authorizer: Arc::new(AlwaysAllow),
        dynamic_admission: Arc::default(),
    }
}

/// Objects and kinds from a list. Converting between versions changes nothing.
#[derive(Default)]
pub(crate) struct FakeObjects {
    pub(crate) objects: Vec<(GroupVersionResource, Value)>,
    /// Resource, kind, and whether it is namespaced.
    pub(crate) kinds: Vec<(GroupVersionResource, GroupVersionKind, bool)>,
}

impl FakeObjects {
    fn serves(&self, resource: &GroupVersionResource) -> bool {
        self.kinds.iter().any(|(known, _, _)| known == resource)
    }
}

impl ServedObjects for FakeObjects {
    fn get<'a>(
        &'a self,
        resource: &'a GroupVersionResource,
        namespace: &'a str,
        name: &'a str,
        _freshness: Freshness,
    ) -> BoxFuture<'a, Result<Option<Value>, ApiError>> {
        let found = self.objects.iter().find(|(known, object)| {
            known == resource
                && object.str_at(&["metadata", "namespace"]) == namespace
                && object.str_at(&["metadata", "name"]) == name
        });
        Box::pin(std::future::ready(Ok(found.map(|(_, object)| object.clone()))))
    }

    fn namespace_labels(&self, name: &str) -> Option<Vec<(Str, Str)>> {
        let mut namespaces =
            self.objects.iter().filter(|(known, _)| *known == crate::resources::NAMESPACES);
        let is_it = |(_, object): &&(_, Value)| object.str_at(&["metadata", "name"]) == name;
        let (_, namespace) = namespaces.find(is_it)?;
        let labels = namespace.at(&["metadata", "labels"])?.as_object()?;
        let text = |value: &Value| Str::new(value.as_str().unwrap_or_default());
        Some(labels.iter().map(|(key, value)| (key.clone(), text(value))).collect())
    }

    fn list<'a>(
        &'a self,
        resource: &'a GroupVersionResource,
        namespace: &'a str,
        selector: &'a LabelSelector,
    ) -> BoxFuture<'a, Result<Vec<Value>, ApiError>> {
        let found = self.objects.iter().filter(|(known, object)| {
            known == resource
                && (namespace.is_empty() || object.str_at(&["metadata", "namespace"]) == namespace)
                && selector.matches_object(object)
        });
        let found = found.map(|(_, object)| object.clone()).collect();
        Box::pin(std::future::ready(Ok(found)))
    }

    fn resource_of(&self, kind: &GroupVersionKind) -> Option<(GroupVersionResource, bool)> {
        let (resource, _, namespaced) = self.kinds.iter().find(|(_, known, _)| known == kind)?;
        Some((resource.clone(), *namespaced))
    }

    fn equivalents(
        &self,
        resource: &GroupVersionResource,
    ) -> Vec<(GroupVersionResource, GroupVersionKind)> {
        let others = self.kinds.iter().filter(|(known, _, _)| {
            known.group_resource() == resource.group_resource() && known.version != resource.version
        });
        others.map(|(resource, kind, _)| (resource.clone(), kind.clone())).collect()
    }

    /// Another server creates namespace `raced` at the same time; no other one can be created.
    fn create_namespace<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), ApiError>> {
        let resource = resources::NAMESPACES.group_resource();
        let exists = ApiError::AlreadyExists { resource, name: name.to_owned(), deleting: false };
        let result = if name == "raced" { Err(exists) } else { Err(ApiError::internal(name)) };
        Box::pin(std::future::ready(result))
    }

    fn convert<'a>(
        &'a self,
        object: Value,
        _from: &'a GroupVersionResource,
        to: &'a GroupVersionResource,
    ) -> BoxFuture<'a, Result<Value, ApiError>> {
        let unknown = || ApiError::internal(format!("{} is not served", to.resource));
        let converted = if self.serves(to) { Ok(object) } else { Err(unknown()) };
        Box::pin(std::future::ready(converted))
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
        _strict: bool,
    ) -> Result<Value, ApiError> {
        crate::versioned::decode(json)
    }

    fn decode_typed(
        &self,
        _kind: &GroupVersionKind,
        json: &[u8],
        _strict: bool,
    ) -> Result<Value, String> {
        crate::versioned::decode(json).map_err(|error| error.to_string())
    }

    fn merge_applied(
        &self,
        _resource: &GroupVersionResource,
        kind: &GroupVersionKind,
        live: &Value,
        _configuration: &Value,
    ) -> Result<Value, String> {
        match self.resource_of(kind) {
            Some(_) => Ok(live.clone()),
            None => Err(format!("{} is not served", kind.kind)),
        }
    }
}
