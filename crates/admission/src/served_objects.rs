//! What plugins may know of the rest of the server, without knowing the store or the registry.

use std::sync::Arc;

use meta::{
    ApiError, GroupVersionKind, GroupVersionResource, Str, Value, authorization::Authorizer,
    selector::LabelSelector,
};

use crate::DynamicAdmission;

pub use meta::BoxFuture;

/// Given to every plugin with every request.
pub struct Cluster {
    pub objects: Box<dyn ServedObjects>,
    pub authorizer: Arc<dyn Authorizer>,
    /// Webhooks and policies, kept current.
    pub dynamic_admission: Arc<DynamicAdmission>,
}

/// The objects of every served resource, built-in and custom, from the watch caches.
pub trait ServedObjects: Send + Sync + 'static {
    /// An object in the version that `resource` names; None: there is no such object or resource.
    fn get<'a>(
        &'a self,
        resource: &'a GroupVersionResource,
        namespace: &'a str,
        name: &'a str,
        freshness: Freshness,
    ) -> BoxFuture<'a, Result<Option<Value>, ApiError>>;

    /// The labels of a namespace, sorted by key, as the watch cache has them; None: it has no such
    /// namespace, which may still be in the store.
    fn namespace_labels(&self, _name: &str) -> Option<Vec<(Str, Str)>> {
        None
    }

    /// The objects of a namespace ("": of all) that a selector selects.
    fn list<'a>(
        &'a self,
        resource: &'a GroupVersionResource,
        namespace: &'a str,
        selector: &'a LabelSelector,
    ) -> BoxFuture<'a, Result<Vec<Value>, ApiError>>;

    /// The resource that objects of a kind belong to, and whether it is namespaced.
    fn resource_of(&self, kind: &GroupVersionKind) -> Option<(GroupVersionResource, bool)>;

    /// The other served versions of a resource, for `matchPolicy: Equivalent`: what is written to one
    /// of them is the same object in all.
    fn equivalents(
        &self,
        resource: &GroupVersionResource,
    ) -> Vec<(GroupVersionResource, GroupVersionKind)>;

    /// Whether a resource is that of a definition.
    fn is_custom(&self, _resource: &GroupVersionResource) -> bool {
        false
    }

    /// Creates a namespace in the name of the server.
    fn create_namespace<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(std::future::ready(Err(ApiError::internal(name))))
    }

    /// An object of one served version in another one.
    fn convert<'a>(
        &'a self,
        object: Value,
        from: &'a GroupVersionResource,
        to: &'a GroupVersionResource,
    ) -> BoxFuture<'a, Result<Value, ApiError>>;

    /// The JSON that clients get of an object. `kind` is the resource's own or that of a subresource
    /// (`Scale`, `Eviction`).
    fn encode(
        &self,
        resource: &GroupVersionResource,
        kind: &GroupVersionKind,
        object: &Value,
    ) -> Vec<u8>;

    /// An object that admission has changed, read as if a client had sent it: what does not fit the
    /// types of its kind is an error, unknown fields are dropped or, if `strict`, an error, defaults are
    /// filled in.
    fn decode_changed(
        &self,
        resource: &GroupVersionResource,
        kind: &GroupVersionKind,
        json: &[u8],
        strict: bool,
    ) -> Result<Value, ApiError>;

    /// An object of a type that no resource has (an AdmissionReview), read as Go reads it. `strict`:
    /// unknown fields are an error. Err: what Go says about it.
    fn decode_typed(
        &self,
        kind: &GroupVersionKind,
        json: &[u8],
        strict: bool,
    ) -> Result<Value, String>;

    /// Merges a configuration into an object as server-side apply does, without owners. Err: why the
    /// configuration does not fit the kind.
    fn merge_applied(
        &self,
        resource: &GroupVersionResource,
        kind: &GroupVersionKind,
        live: &Value,
        configuration: &Value,
    ) -> Result<Value, String>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// As the watch cache has it, which may be behind the store for a moment.
    Cached,
    /// At least as new as the moment of the call.
    Linearizable,
}

const fn resource(
    group: &'static str,
    version: &'static str,
    resource: &'static str,
) -> GroupVersionResource {
    GroupVersionResource {
        group: Str::new_static(group),
        version: Str::new_static(version),
        resource: Str::new_static(resource),
    }
}

/// The resources that the built-in plugins look at.
pub mod resources {
    use super::{GroupVersionResource, resource};

    pub static NAMESPACES: GroupVersionResource = resource("", "v1", "namespaces");
    pub static SERVICES: GroupVersionResource = resource("", "v1", "services");
    pub static ENDPOINT_SLICES: GroupVersionResource =
        resource("discovery.k8s.io", "v1", "endpointslices");
    pub static NODES: GroupVersionResource = resource("", "v1", "nodes");
    pub static PODS: GroupVersionResource = resource("", "v1", "pods");
    pub static SERVICE_ACCOUNTS: GroupVersionResource = resource("", "v1", "serviceaccounts");
    pub static PERSISTENT_VOLUMES: GroupVersionResource = resource("", "v1", "persistentvolumes");
    pub static PERSISTENT_VOLUME_CLAIMS: GroupVersionResource =
        resource("", "v1", "persistentvolumeclaims");
    pub static CERTIFICATE_SIGNING_REQUESTS: GroupVersionResource =
        resource("certificates.k8s.io", "v1", "certificatesigningrequests");
    pub static CLUSTER_TRUST_BUNDLES: GroupVersionResource =
        resource("certificates.k8s.io", "v1beta1", "clustertrustbundles");
    pub static EVENTS: GroupVersionResource = resource("", "v1", "events");
    pub static LIMIT_RANGES: GroupVersionResource = resource("", "v1", "limitranges");
    pub static INGRESSES: GroupVersionResource = resource("networking.k8s.io", "v1", "ingresses");
    pub static INGRESS_CLASSES: GroupVersionResource =
        resource("networking.k8s.io", "v1", "ingressclasses");
    pub static PRIORITY_CLASSES: GroupVersionResource =
        resource("scheduling.k8s.io", "v1", "priorityclasses");
    pub static RUNTIME_CLASSES: GroupVersionResource =
        resource("node.k8s.io", "v1", "runtimeclasses");
    pub static STORAGE_CLASSES: GroupVersionResource =
        resource("storage.k8s.io", "v1", "storageclasses");
    pub static VOLUME_ATTRIBUTES_CLASSES: GroupVersionResource =
        resource("storage.k8s.io", "v1", "volumeattributesclasses");
    pub static CSI_DRIVERS: GroupVersionResource = resource("storage.k8s.io", "v1", "csidrivers");
    pub static POD_GROUPS: GroupVersionResource =
        resource("scheduling.k8s.io", "v1alpha2", "podgroups");
    pub static WORKLOADS: GroupVersionResource =
        resource("scheduling.k8s.io", "v1alpha2", "workloads");
    pub static RESOURCE_SLICES: GroupVersionResource =
        resource("resource.k8s.io", "v1", "resourceslices");
}
