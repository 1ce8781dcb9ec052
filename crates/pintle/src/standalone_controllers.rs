//! Starts the controllers of kube-controller-manager that `--standalone-controllers` enables, for
//! clusters without one.

use std::{collections::HashSet, sync::Arc};

use controllers::{
    ClusterRoleAggregation, CsrCleaner, GarbageCollector, LegacyServiceAccountTokenCleaner,
    NamespaceController, PvProtectionController, PvcProtectionController, ResourceQuotaController,
    RootCaPublisher, ServiceAccountController, ServiceCidrController, TokensController,
    VacProtectionController, ValidatingAdmissionPolicyStatus,
};
use registry::Kind;
use serve::pki::Pki;
use tokio::sync::mpsc;

use crate::{
    cache_informer::CacheInformer,
    in_process::{Api, TypeChecker},
    options::StandaloneControllers,
    quotas::CountedUsage,
    tokens::Tokens,
};

/// What the controllers need.
pub(crate) struct ControllerContext<'a> {
    pub(crate) api: &'a Arc<Api>,
    pub(crate) kinds: &'a [Arc<Kind>],
    /// New caches of custom resources.
    pub(crate) started: Option<mpsc::UnboundedReceiver<Arc<Kind>>>,
    pub(crate) pki: &'a Pki,
    pub(crate) tokens: &'a Arc<Tokens>,
    pub(crate) quota_usage: Arc<CountedUsage>,
}

impl ControllerContext<'_> {
    /// Starts the enabled controllers.
    pub(crate) fn start(self, wanted: &StandaloneControllers) -> Result<(), std::io::Error> {
        let api = self.api.clone();
        let is_enabled = |name: &str| wanted.has(name);
        if is_enabled("namespace-controller") {
            let events = CacheInformer::start(&self.core(&["Namespace"]), |event| !event.deleted);
            tokio::spawn(NamespaceController { api: api.clone() }.run(events));
        }
        self.start_service_accounts(&is_enabled)?;
        if is_enabled("clusterrole-aggregation-controller") {
            let roles = self.kinds_of("rbac.authorization.k8s.io", &["ClusterRole"]);
            let events = CacheInformer::start(&roles, |_| true);
            tokio::spawn(ClusterRoleAggregation { api: api.clone() }.run(events));
        }
        if is_enabled("certificatesigningrequest-cleaner-controller") {
            tokio::spawn(CsrCleaner { api: api.clone() }.run());
        }
        if is_enabled("validatingadmissionpolicy-status-controller") {
            let kinds =
                self.kinds_of("admissionregistration.k8s.io", &["ValidatingAdmissionPolicy"]);
            let events = CacheInformer::start(&kinds, |event| !event.deleted);
            let type_checker = Arc::new(TypeChecker(api.clone()));
            let controller = ValidatingAdmissionPolicyStatus { api: api.clone(), type_checker };
            tokio::spawn(controller.run(events));
        }
        if is_enabled("service-cidr-controller") {
            let kinds = self.kinds_of("networking.k8s.io", &["ServiceCIDR", "IPAddress"]);
            let events = CacheInformer::start(&kinds, |_| true);
            tokio::spawn(ServiceCidrController { api: api.clone() }.run(events));
        }
        if is_enabled("persistentvolumeclaim-protection-controller") {
            let kinds = self.core(&["PersistentVolumeClaim", "Pod"]);
            let events = CacheInformer::start(&kinds, |event| {
                event.deleted || event.resource.gvr.resource != "pods"
            });
            tokio::spawn(PvcProtectionController { api: api.clone() }.run(events));
        }
        if is_enabled("persistentvolume-protection-controller") {
            let events =
                CacheInformer::start(&self.core(&["PersistentVolume"]), |event| !event.deleted);
            tokio::spawn(PvProtectionController { api: api.clone() }.run(events));
        }
        if is_enabled(ResourceQuotaController::NAME) {
            let events = CacheInformer::start(&stored_once(self.kinds), |event| {
                event.resource.namespaced
                    && (event.deleted
                        || event.resource.gvr.resource == "resourcequotas"
                        || event.frees_quota())
            });
            let usage = self.quota_usage.clone();
            tokio::spawn(ResourceQuotaController { api: api.clone(), usage }.run(events));
        }
        if is_enabled("volumeattributesclass-protection-controller") {
            let mut kinds = self.core(&["PersistentVolume", "PersistentVolumeClaim"]);
            kinds.extend(self.kinds_of("storage.k8s.io", &["VolumeAttributesClass"]));
            let events = CacheInformer::start(&kinds, |_| true);
            tokio::spawn(VacProtectionController { api: api.clone() }.run(events));
        }
        if is_enabled("garbage-collector-controller") {
            let kinds = stored_once(self.kinds);
            let events = CacheInformer::start(&kinds, |event| {
                event.deleted || event.has_owner_or_is_deleting()
            });
            tokio::spawn(GarbageCollector { api }.run(events.with_custom_kinds(self.started)));
        }
        Ok(())
    }

    /// The controllers of service accounts, their tokens and the root CA.
    fn start_service_accounts(
        &self,
        is_enabled: &dyn Fn(&str) -> bool,
    ) -> Result<(), std::io::Error> {
        let api = self.api;
        let ca = std::fs::read_to_string(&self.pki.ca_cert)?;
        if is_enabled("serviceaccount-token-controller") {
            let (tokens, ca) = (self.tokens.clone(), ca.clone());
            let controller = TokensController { api: api.clone(), tokens, ca };
            let events = CacheInformer::start(&self.core(&["Secret", "ServiceAccount"]), |event| {
                event.resource.gvr.resource == "serviceaccounts" || event.is_token_secret()
            });
            tokio::spawn(controller.run(events));
        }
        if is_enabled("legacy-serviceaccount-token-cleaner-controller") {
            tokio::spawn(LegacyServiceAccountTokenCleaner { api: api.clone() }.run());
        }
        if is_enabled("serviceaccount-controller") {
            let events = self.namespaces_and("ServiceAccount", ServiceAccountController::NAME);
            tokio::spawn(ServiceAccountController { api: api.clone() }.run(events));
        }
        if is_enabled("root-ca-certificate-publisher-controller") {
            let events = self.namespaces_and("ConfigMap", RootCaPublisher::NAME);
            tokio::spawn(RootCaPublisher { api: api.clone(), ca }.run(events));
        }
        Ok(())
    }

    /// Events of namespaces, and of the objects of a core kind that have this name.
    fn namespaces_and(&self, kind: &str, name: &'static str) -> CacheInformer {
        CacheInformer::start(&self.core(&["Namespace", kind]), move |event| {
            event.resource.gvr.resource == "namespaces" || event.entry.name == name
        })
    }

    fn core(&self, names: &[&str]) -> Vec<Arc<Kind>> {
        self.kinds_of("", names)
    }

    /// One version of each kind.
    fn kinds_of(&self, group: &str, names: &[&str]) -> Vec<Arc<Kind>> {
        let find = |name: &&str| {
            let mut kinds = self.kinds.iter().filter(|kind| kind.gvk().group == group);
            kinds.find(|kind| kind.gvk().kind == **name).cloned()
        };
        names.iter().filter_map(find).collect()
    }
}

/// The kinds that the garbage collector watches, each resource in one version. Events are excluded: they
/// expire.
fn stored_once(kinds: &[Arc<Kind>]) -> Vec<Arc<Kind>> {
    let mut seen = HashSet::new();
    let kinds = kinds.iter().filter(|kind| kind.gvk().kind != "Event" && kind.has_verb("delete"));
    let once = kinds.filter(|kind| {
        kind.storage.as_ref().is_some_and(|storage| seen.insert(storage.prefix.clone()))
    });
    once.cloned().collect()
}
