//! Controllers that kube-apiserver or kube-controller-manager run beside the API. They are clients of
//! the API, in process, and know nothing of the store.

mod bootstrap;
mod bootstrap_roles;
mod cluster_authentication_trust;
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
mod leader_election;
mod leader_elector;
mod legacy_service_account_token_cleaner;
mod namespace_controller;
mod pv_pvc_protection;
mod resource_quota_controller;
mod root_ca;
mod service_cidr_controller;
mod storage_version_updater;
mod system_namespaces;
#[cfg(test)]
mod testing;
mod tokens_controller;
mod validating_admission_policy_status;
mod workqueue;
mod workqueue_metrics;

pub use bootstrap::{
    SYSTEM_NAMESPACES, config_map, get_or_create, namespace, priority_classes, reconcile_fields,
};
pub use bootstrap_roles::{ROLE_GATES, reconcile_bootstrap_roles};
pub use cluster_authentication_trust::{
    AuthenticationInfo, ClusterAuthenticationTrust, RequestHeaderInfo,
};
pub use cluster_role_aggregation::ClusterRoleAggregation;
pub use csr_cleaner::CsrCleaner;
pub use default_service_account::ServiceAccountController;
pub use default_service_cidr::DefaultServiceCidr;
pub use flow_control_bootstrap::{
    FlowControlBootstrap, FlowControlConfigConsumer, ensure_flow_control_defaults, flow_schemas,
    priority_levels,
};
pub use garbage_collector::GarbageCollector;
pub use identity_lease::IdentityLease;
pub use informer::{Informer, InformerEvent, ObjectEvent, Resource};
pub use kubernetes_service::{EndpointReconciler, KubernetesService, MasterLeases};
pub use leader_election::{LeaderElectionController, lease_candidates};
pub use leader_elector::{LeaderElectionTimers, LeaderElector};
pub use legacy_service_account_token_cleaner::LegacyServiceAccountTokenCleaner;
pub use namespace_controller::NamespaceController;
pub use pv_pvc_protection::{
    PvProtectionController, PvcProtectionController, VacProtectionController,
};
pub use resource_quota_controller::{MeasuredUsage, QuotaUsage, ResourceQuotaController};
pub use root_ca::RootCaPublisher;
pub use service_cidr_controller::ServiceCidrController;
pub use storage_version_updater::{ServerStorageVersion, StorageVersionUpdater};
pub use system_namespaces::SystemNamespaces;
pub use tokens_controller::{TokenGenerator, TokensController};
pub use validating_admission_policy_status::{PolicyTypeChecker, ValidatingAdmissionPolicyStatus};
pub use workqueue::{Key, ReconcileResult, Reconciler, run as run_workqueue};
pub use workqueue_metrics::register_workqueue_metrics;

use std::sync::Arc;

use meta::{ApiError, GroupVersionResource, Value};

pub use meta::BoxFuture;

/// The API operations that controllers use.
pub trait ApiClient: Send + Sync + 'static {
    fn get<'a>(&'a self, target: &'a ResourceRef) -> BoxFuture<'a, Result<Value, ApiError>>;
    fn list<'a>(&'a self, target: &'a ResourceRef) -> BoxFuture<'a, Result<Vec<Value>, ApiError>>;
    fn create<'a>(
        &'a self,
        target: &'a ResourceRef,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<Value, ApiError>>;
    /// A create whose caller does not need the stored object, which then is not decoded.
    fn create_only<'a>(
        &'a self,
        target: &'a ResourceRef,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move { self.create(target, object).await.map(drop) })
    }
    fn update<'a>(
        &'a self,
        target: &'a ResourceRef,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<Value, ApiError>>;
    /// Server-side apply with `force=true`.
    fn apply<'a>(
        &'a self,
        target: &'a ResourceRef,
        object: &'a Value,
        manager: &'a str,
    ) -> BoxFuture<'a, Result<Value, ApiError>>;
    /// `options` are `DeleteOptions`.
    fn delete<'a>(
        &'a self,
        target: &'a ResourceRef,
        options: &'a Value,
    ) -> BoxFuture<'a, Result<(), ApiError>>;
    /// With propagation policy `Background`: the garbage collector deletes the dependents.
    fn delete_collection<'a>(
        &'a self,
        target: &'a ResourceRef,
    ) -> BoxFuture<'a, Result<(), ApiError>>;
    /// The resource of a kind, as a `RESTMapper` finds it; None if the kind is not served.
    fn resource_of(&self, api_version: &str, kind: &str) -> Option<Arc<Resource>>;
    fn namespaced_resources(&self) -> Discovered;
}

/// The namespaced resources that discovery has.
#[derive(Clone, Debug, Default)]
pub struct Discovered {
    /// Those that can be listed and deleted, each in one version.
    pub resources: Vec<GroupVersionResource>,
    /// Group-versions of aggregated apiservers whose discovery failed, and the error.
    pub failed: Vec<(String, String)>,
}

/// The resource, object or subresource of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceRef {
    pub gvr: GroupVersionResource,
    pub namespace: String,
    pub name: String,
    pub subresource: &'static str,
    /// Field manager of a create or update; "" for the apiserver itself.
    pub manager: &'static str,
}

impl ResourceRef {
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
