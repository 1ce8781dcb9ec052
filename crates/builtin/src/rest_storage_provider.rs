//! What kinds do beyond storing objects: computed resources, subresources that act, allocators and
//! checks of writes. Those that need other kinds or the whole server are connected to them after all
//! kinds are built.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use meta::ApiError;
use registry::{Action, Allocator, ComputedResource, Kind, StorageCodec, WriteAuthorizer};
use store::Backend;

use crate::{
    Access, Client, Options,
    authentication::{self_subject_review::SelfSubjectReview, token_review::TokenReview},
    authorization::{
        access_review::{AccessReview, ReviewScope},
        rules_review::RulesReview,
    },
    certificates::pod_certificate_request::SignWriteAuthorizer,
    core::{
        component_status::ComponentStatuses,
        master_leases::{LeaseStore, MasterLeases, PeerLeases},
        pod::{
            binding::{Bindings, PodBinding},
            eviction::PodEviction,
        },
        service::allocate::ServiceAllocator,
        service_account::token::TokenRequests,
    },
    rbac::escalation::{BindingEscalation, RoleEscalation},
    resource::write_authorizer::ClaimWriteAuthorizer,
};

/// Gives each kind its computed resource, actions, allocator and write authorizer.
pub struct RestStorageProvider {
    access: Access,
    backend: Arc<dyn Backend>,
    bindings: Arc<Bindings>,
    eviction: Arc<PodEviction>,
    namespaces: Arc<OnceLock<Arc<Kind>>>,
    services: Arc<ServiceAllocator>,
    token_requests: Arc<TokenRequests>,
    master_leases: OnceLock<Arc<MasterLeases>>,
    peer_leases: OnceLock<Arc<PeerLeases>>,
}

impl RestStorageProvider {
    pub(crate) fn new(options: &Options, backend: &Arc<dyn Backend>) -> Self {
        let services =
            ServiceAllocator::new(&options.service_cluster_ip_ranges, options.service_node_ports);
        Self {
            access: options.access.clone(),
            backend: backend.clone(),
            bindings: Arc::default(),
            eviction: Arc::default(),
            namespaces: Arc::default(),
            services: Arc::new(services),
            token_requests: Arc::new(TokenRequests::new(options.tokens.clone())),
            master_leases: OnceLock::new(),
            peer_leases: OnceLock::new(),
        }
    }

    /// Several apiservers allocate node ports from this store.
    pub(crate) fn share_node_ports(&self, prefix: &str, codec: Arc<dyn StorageCodec>) {
        let key = format!("{prefix}/ranges/servicenodeports").into();
        self.services.share_ports(self.backend.clone(), key, codec);
    }

    /// Several apiservers use this store, and each publishes its address in it.
    pub(crate) fn share_addresses(&self, prefix: &str, codec: Arc<dyn StorageCodec>) {
        let store = |resource| LeaseStore {
            backend: self.backend.clone(),
            prefix: format!("{prefix}/{resource}/").into(),
            codec: codec.clone(),
        };
        drop(self.master_leases.set(Arc::new(MasterLeases(store("masterleases")))));
        drop(self.peer_leases.set(Arc::new(PeerLeases(store("peerserverleases")))));
    }

    /// The addresses of all apiservers over this store. None: no other apiserver uses it.
    pub fn master_leases(&self) -> Option<Arc<MasterLeases>> {
        self.master_leases.get().cloned()
    }

    /// The addresses at which peers reach each other. None: no other apiserver uses this store.
    pub fn peer_leases(&self) -> Option<Arc<PeerLeases>> {
        self.peer_leases.get().cloned()
    }

    /// Adds to a kind what it does beyond storing objects.
    pub(crate) fn provide(&self, kind: Kind) -> Kind {
        let (group, name) = (kind.gvk().group.clone(), kind.gvk().kind.clone());
        kind.with_computed(self.computed(&group, &name))
            .with_actions(self.actions(&group, &name))
            .with_allocator(self.allocator(&group, &name))
            .authorized_by(self.write_authorizer(&group, &name))
    }

    fn computed(&self, group: &str, kind: &str) -> Option<Arc<dyn ComputedResource>> {
        let access = &self.access;
        let access_review = |scope| AccessReview { scope, authorizer: access.authorizer.clone() };
        Some(match (group, kind) {
            ("", "Binding") => self.bindings.clone(),
            ("", "ComponentStatus") => Arc::new(ComponentStatuses(self.backend.clone())),
            ("authentication.k8s.io", "SelfSubjectReview") => Arc::new(SelfSubjectReview),
            ("authentication.k8s.io", "TokenReview") => {
                Arc::new(TokenReview(access.token_authenticator.clone()))
            }
            ("authorization.k8s.io", "SelfSubjectAccessReview") => {
                Arc::new(access_review(ReviewScope::Oneself))
            }
            ("authorization.k8s.io", "SubjectAccessReview") => {
                Arc::new(access_review(ReviewScope::AnySubject))
            }
            ("authorization.k8s.io", "LocalSubjectAccessReview") => {
                Arc::new(access_review(ReviewScope::AnySubjectInNamespace))
            }
            ("authorization.k8s.io", "SelfSubjectRulesReview") => {
                Arc::new(RulesReview(access.authorizer.clone()))
            }
            _ => return None,
        })
    }

    fn actions(&self, group: &str, kind: &str) -> Vec<(&'static str, Arc<dyn Action>)> {
        match (group, kind) {
            ("", "Pod") => {
                vec![("binding", Arc::new(PodBinding)), ("eviction", self.eviction.clone())]
            }
            ("", "ServiceAccount") => vec![("token", self.token_requests.clone())],
            _ => Vec::new(),
        }
    }

    fn write_authorizer(&self, group: &str, kind: &str) -> Option<Arc<dyn WriteAuthorizer>> {
        let access = self.access.clone();
        match (group, kind) {
            ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => {
                Some(Arc::new(RoleEscalation(access)))
            }
            ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
                Some(Arc::new(BindingEscalation(access)))
            }
            ("resource.k8s.io", "ResourceClaim" | "ResourceClaimTemplate") => {
                Some(Arc::new(ClaimWriteAuthorizer {
                    authorizer: access.authorizer,
                    namespaces: self.namespaces.clone(),
                }))
            }
            ("certificates.k8s.io", "PodCertificateRequest") => {
                Some(Arc::new(SignWriteAuthorizer(access.authorizer)))
            }
            _ => None,
        }
    }

    fn allocator(&self, group: &str, kind: &str) -> Option<Arc<dyn Allocator>> {
        match (group, kind) {
            ("", "Service") => Some(self.services.clone()),
            _ => None,
        }
    }

    /// Hands the kinds to those that need another one; called once, with all kinds.
    pub(crate) fn link_kinds(&self, kinds: &[Arc<Kind>]) {
        for kind in kinds {
            // Set once; the first of several versions will do.
            match (kind.gvk().group.as_str(), kind.gvk().kind.as_str()) {
                ("", "Pod") => {
                    let _ = self.bindings.pods.set(kind.clone());
                    let _ = self.token_requests.pods.set(kind.clone());
                }
                ("", "Namespace") => drop(self.namespaces.set(kind.clone())),
                ("", "Secret") => drop(self.token_requests.secrets.set(kind.clone())),
                ("", "Node") => drop(self.token_requests.nodes.set(kind.clone())),
                ("policy", "PodDisruptionBudget") => drop(self.eviction.budgets.set(kind.clone())),
                _ => {}
            }
        }
    }

    /// Called when the server is built and its caches are filled.
    pub async fn connect(
        &self,
        client: Arc<dyn Client>,
        kinds: &[Arc<Kind>],
    ) -> Result<(), ApiError> {
        self.services.connect(client, kinds).await
    }

    /// Repairs allocations that a crash has left behind.
    pub async fn repair(&self, kinds: &[Arc<Kind>]) -> Result<(), ApiError> {
        match services(kinds) {
            Some(services) => self.services.repair(services).await,
            None => Ok(()),
        }
    }

    /// Repairs the addresses of a Service that was written.
    pub async fn repair_service(
        &self,
        kinds: &[Arc<Kind>],
        namespace: &str,
        name: &str,
    ) -> Result<(), ApiError> {
        match services(kinds) {
            Some(services) => self.services.repair_service(services, namespace, name).await,
            None => Ok(()),
        }
    }

    /// Releases an IPAddress that was written, and that no Service has. Returns when to look at it again.
    pub async fn repair_address(
        &self,
        kinds: &[Arc<Kind>],
        name: &str,
    ) -> Result<Option<Duration>, ApiError> {
        match services(kinds) {
            Some(services) => self.services.repair_address(services, name).await,
            None => Ok(None),
        }
    }

    /// Repeats [`Self::repair`] every three minutes, until the server stops.
    pub fn keep_repairing(&self, kinds: &[Arc<Kind>]) -> impl Future<Output = ()> + use<> {
        let (allocator, services) = (self.services.clone(), services(kinds).cloned());
        async move {
            let Some(services) = services else { return };
            loop {
                tokio::time::sleep(REPAIR_EVERY).await;
                if let Err(error) = allocator.repair(&services).await {
                    tracing::warn!("cannot check the addresses and ports of services: {error}");
                }
            }
        }
    }
}

const REPAIR_EVERY: Duration = Duration::from_mins(3);

fn services(kinds: &[Arc<Kind>]) -> Option<&Arc<Kind>> {
    kinds.iter().find(|kind| kind.gvk().group.is_empty() && kind.gvk().kind == "Service")
}
