//! Services and EndpointSlices for resolvers, read from the watch caches.

use std::sync::Arc;

use client::{BoxFuture, LookupError, ServiceLookup};
use meta::{ApiError, Value, selector::LabelSelector};
use registry::Kind;

/// None: `--runtime-config` has turned the kind off, so that there are no such objects.
#[derive(Clone)]
pub(crate) struct ServiceObjects {
    services: Option<Arc<Kind>>,
    endpoint_slices: Option<Arc<Kind>>,
}

impl ServiceObjects {
    pub(crate) fn new(kinds: &[Arc<Kind>]) -> Self {
        let find = |group: &str, name: &str| {
            let mut kinds = kinds.iter();
            kinds.find(|kind| kind.gvk().group == group && kind.gvk().kind == name).cloned()
        };
        Self {
            services: find("", "Service"),
            endpoint_slices: find("discovery.k8s.io", "EndpointSlice"),
        }
    }
}

impl ServiceLookup for ServiceObjects {
    fn service<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, LookupError>> {
        Box::pin(async move {
            let Some(kind) = &self.services else { return Ok(None) };
            kind.find_object(namespace, name, false).await.map_err(failed)
        })
    }

    fn endpoint_slices<'a>(
        &'a self,
        namespace: &'a str,
        service: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Value>, LookupError>> {
        Box::pin(async move {
            let Some(kind) = &self.endpoint_slices else { return Ok(Vec::new()) };
            let selector = LabelSelector::parse(&format!("kubernetes.io/service-name={service}"));
            let selector = selector.map_err(|why| LookupError(why.into()))?;
            kind.select_objects(namespace, &selector).await.map_err(failed)
        })
    }
}

fn failed(error: ApiError) -> LookupError {
    LookupError(error.into())
}
