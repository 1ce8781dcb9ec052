//! Services and EndpointSlices for resolvers, read in process.

use client::{BoxFuture, LookupError, ServiceLookup};
use endpoints::{LoopbackClient, ResourceRef};
use meta::{ApiError, Value};

pub(super) struct LocalServices(pub(super) LoopbackClient);

impl ServiceLookup for LocalServices {
    fn service<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, LookupError>> {
        Box::pin(async move {
            let target = ResourceRef {
                version: "v1",
                resource: "services",
                namespace,
                name,
                ..ResourceRef::default()
            };
            match self.0.get(&target).await {
                Ok(service) => Ok(Some(service)),
                Err(ApiError::NotFound { .. }) => Ok(None),
                Err(error) => Err(LookupError(error.into())),
            }
        })
    }

    fn endpoint_slices<'a>(
        &'a self,
        namespace: &'a str,
        service: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Value>, LookupError>> {
        Box::pin(async move {
            let target = ResourceRef {
                group: "discovery.k8s.io",
                version: "v1",
                resource: "endpointslices",
                namespace,
                ..ResourceRef::default()
            };
            let (mut slices, _) =
                self.0.list(&target).await.map_err(|error| LookupError(error.into()))?;
            let of = ["metadata", "labels", "kubernetes.io/service-name"];
            slices.retain(|slice| slice.str_at(&of) == service);
            Ok(slices)
        })
    }
}
