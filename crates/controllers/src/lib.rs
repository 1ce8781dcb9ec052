//! The loops that make a server behave like a cluster. They speak to the API like any client, in
//! process, and know nothing of the store.

mod bootstrap;
mod bootstrap_roles;
mod cluster_role_aggregation;
mod csr_cleaner;
mod default_service_account;
mod default_service_cidr;
mod finalizers;
mod flow_control_bootstrap;
mod garbage_collector;
mod identity_lease;
mod informer;
mod kubernetes_service;
mod legacy_service_account_token_cleaner;
mod namespace_controller;
mod pv_pvc_protection;
mod root_ca;
mod service_cidr_controller;
mod system_namespaces;
#[cfg(test)]
mod testing;
mod tokens_controller;
mod workqueue;

pub use bootstrap::{
    SYSTEM_NAMESPACES, config_map, get_or_create, namespace, priority_classes, reconcile_fields,
};
pub use bootstrap_roles::reconcile_bootstrap_roles;
pub use cluster_role_aggregation::ClusterRoleAggregation;
pub use csr_cleaner::CsrCleaner;
pub use default_service_account::ServiceAccountController;
pub use default_service_cidr::DefaultServiceCidr;
pub use flow_control_bootstrap::{
    FlowControlBootstrap, FlowSchemaStatusController, ensure_flow_control_defaults, flow_schemas,
    priority_levels,
};
pub use garbage_collector::GarbageCollector;
pub use identity_lease::IdentityLease;
pub use informer::{Informer, InformerEvent, ObjectEvent, Resource};
pub use kubernetes_service::{EndpointReconciler, KubernetesService, MasterLeases};
pub use legacy_service_account_token_cleaner::LegacyServiceAccountTokenCleaner;
pub use namespace_controller::NamespaceController;
pub use pv_pvc_protection::{PvProtectionController, PvcProtectionController};
pub use root_ca::RootCaPublisher;
pub use service_cidr_controller::ServiceCidrController;
pub use system_namespaces::SystemNamespaces;
pub use tokens_controller::{TokenGenerator, TokensController};

use std::{future::Future, pin::Pin, sync::Arc};

use meta::{ApiError, GroupVersionResource, Value};

pub type Pinned<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a loop needs of the API.
pub trait Api: Send + Sync + 'static {
    fn get<'a>(&'a self, target: &'a Target) -> Pinned<'a, Result<Value, ApiError>>;
    fn list<'a>(&'a self, target: &'a Target) -> Pinned<'a, Result<Vec<Value>, ApiError>>;
    fn create<'a>(
        &'a self,
        target: &'a Target,
        object: &'a Value,
    ) -> Pinned<'a, Result<Value, ApiError>>;
    fn update<'a>(
        &'a self,
        target: &'a Target,
        object: &'a Value,
    ) -> Pinned<'a, Result<Value, ApiError>>;
    /// Server-side apply, by force.
    fn apply<'a>(
        &'a self,
        target: &'a Target,
        object: &'a Value,
        manager: &'a str,
    ) -> Pinned<'a, Result<Value, ApiError>>;
    /// `options` are `DeleteOptions`.
    fn delete<'a>(
        &'a self,
        target: &'a Target,
        options: &'a Value,
    ) -> Pinned<'a, Result<(), ApiError>>;
    /// In the background: dependents are left to the garbage collector.
    fn delete_collection<'a>(&'a self, target: &'a Target) -> Pinned<'a, Result<(), ApiError>>;
    /// The resource that objects of a kind belong to; None: nobody serves it.
    fn resource_of(&self, api_version: &str, kind: &str) -> Option<Arc<Resource>>;
    fn namespaced_resources(&self) -> Discovered;
}

/// What there can be in a namespace.
#[derive(Clone, Debug, Default)]
pub struct Discovered {
    /// The namespaced resources that can be listed and deleted, each once.
    pub resources: Vec<GroupVersionResource>,
    /// Group-versions that belong to a server which doesn't say what it has, and why.
    pub failed: Vec<(String, String)>,
}

/// What a call is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    pub gvr: GroupVersionResource,
    pub namespace: String,
    pub name: String,
    pub subresource: &'static str,
    /// Whose the fields are that a create or update writes; "" for the server itself.
    pub manager: &'static str,
}

impl Target {
    pub fn cluster(group: &str, version: &str, resource: &str) -> Self {
        let gvr = GroupVersionResource {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
        };
        Self { gvr, ..Self::default() }
    }

    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }
}
