//! Starts the controllers of kube-controller-manager that `--standalone-controllers` enables, for
//! clusters without one.

use std::{collections::HashSet, sync::Arc, time::Duration};

use aggregator::RemoteReflectors;
use background::Tasks;
use controllers::{
    ClusterRoleAggregation, CsrCleaner, GarbageCollector, LegacyServiceAccountTokenCleaner,
    NamespaceController, PvProtectionController, PvcProtectionController, ResourceQuotaController,
    RootCaPublisher, ServiceAccountController, ServiceCidrController, TokensController,
    VacProtectionController, ValidatingAdmissionPolicyStatus,
};
use registry::Kind;
use serve::pki::Pki;
use tokio::sync::watch;

use crate::{
    cache_informer::{CacheInformer, CustomKinds},
    discovery_publisher::CachedKinds,
    in_process::{ControllerClient, TypeChecker},
    options::StandaloneControllers,
    quotas::CountedUsage,
    tokens::ServiceAccountTokens,
};

/// What the controllers need.
pub(crate) struct ControllerContext<'a> {
    pub(crate) api: &'a Arc<ControllerClient>,
    pub(crate) kinds: &'a [Arc<Kind>],
    /// Custom resources that have a cache.
    pub(crate) custom: watch::Receiver<CachedKinds>,
    pub(crate) tasks: &'a Tasks,
    pub(crate) pki: &'a Pki,
    pub(crate) tokens: &'a Arc<ServiceAccountTokens>,
    pub(crate) quota_usage: Arc<CountedUsage>,
    /// For how long terminating namespaces are left alone.
    pub(crate) namespace_grace: Duration,
}

impl ControllerContext<'_> {
    /// Starts the enabled controllers.
    pub(crate) fn start(self, wanted: &StandaloneControllers) -> Result<(), std::io::Error> {
        let is_enabled = |name: &str| wanted.has(name) && self.serves_kinds_of(name);
        if is_enabled("namespace-controller") {
            let (api, kinds) = (self.api.clone(), self.core(&["Namespace"]));
            let grace = self.namespace_grace;
            self.tasks.restarting("namespace-controller", move || {
                let events = CacheInformer::start(&kinds, |event| !event.deleted);
                NamespaceController::new(api.clone(), grace).run(events)
            });
        }
        self.start_service_accounts(&is_enabled)?;
        if is_enabled("clusterrole-aggregation-controller") {
            let roles = self.kinds_of("rbac.authorization.k8s.io", &["ClusterRole"]);
            let api = self.api.clone();
            self.tasks.restarting("clusterrole-aggregation-controller", move || {
                let events = CacheInformer::start(&roles, |_| true);
                ClusterRoleAggregation { api: api.clone() }.run(events)
            });
        }
        if is_enabled("certificatesigningrequest-cleaner-controller") {
            let api = self.api.clone();
            self.tasks.restarting("certificatesigningrequest-cleaner-controller", move || {
                CsrCleaner { api: api.clone() }.run()
            });
        }
        if is_enabled("validatingadmissionpolicy-status-controller") {
            let kinds =
                self.kinds_of("admissionregistration.k8s.io", &["ValidatingAdmissionPolicy"]);
            let api = self.api.clone();
            self.tasks.restarting("validatingadmissionpolicy-status-controller", move || {
                let events = CacheInformer::start(&kinds, |event| !event.deleted);
                let type_checker = Arc::new(TypeChecker(api.clone()));
                ValidatingAdmissionPolicyStatus { api: api.clone(), type_checker }.run(events)
            });
        }
        if is_enabled("service-cidr-controller") {
            let kinds = self.kinds_of("networking.k8s.io", &["ServiceCIDR", "IPAddress"]);
            let api = self.api.clone();
            self.tasks.restarting("service-cidr-controller", move || {
                let events = CacheInformer::start(&kinds, |_| true);
                ServiceCidrController { api: api.clone() }.run(events)
            });
        }
        if is_enabled(ResourceQuotaController::NAME) {
            let (api, kinds, custom) =
                (self.api.clone(), stored_once(self.kinds), self.custom.clone());
            let usage = self.quota_usage.clone();
            self.tasks.restarting(ResourceQuotaController::NAME, move || {
                let quotas = usage.quotas.clone();
                let events = CacheInformer::start(&kinds, move |event| {
                    quotas.observe(event);
                    event.resource.namespaced
                        && (event.deleted || event.changes_quota() || event.frees_quota())
                });
                let events = events.with_custom_kinds(CustomKinds::new(custom.clone()));
                ResourceQuotaController::new(api.clone(), usage.clone()).run(events)
            });
        }
        self.start_volumes(&is_enabled);
        if is_enabled("garbage-collector-controller") {
            let (api, kinds, custom) =
                (self.api.clone(), stored_once(self.kinds), self.custom.clone());
            self.tasks.restarting("garbage-collector-controller", move || {
                let events = CacheInformer::start(&kinds, |event| {
                    event.deleted || event.has_owner_or_is_deleting()
                });
                let remote = RemoteReflectors { client: api.remote.clone() };
                let events = events
                    .with_custom_kinds(CustomKinds::new(custom.clone()))
                    .with_remote_kinds(remote);
                GarbageCollector { api: api.clone() }.run(events)
            });
        }
        Ok(())
    }

    fn start_volumes(&self, is_enabled: &dyn Fn(&str) -> bool) {
        if is_enabled("persistentvolumeclaim-protection-controller") {
            let kinds = self.core(&["PersistentVolumeClaim", "Pod"]);
            let api = self.api.clone();
            self.tasks.restarting("persistentvolumeclaim-protection-controller", move || {
                let events = CacheInformer::start(&kinds, |event| {
                    event.deleted || event.resource.gvr.resource != "pods"
                });
                PvcProtectionController { api: api.clone() }.run(events)
            });
        }
        if is_enabled("persistentvolume-protection-controller") {
            let (api, kinds) = (self.api.clone(), self.core(&["PersistentVolume"]));
            self.tasks.restarting("persistentvolume-protection-controller", move || {
                let events = CacheInformer::start(&kinds, |event| !event.deleted);
                PvProtectionController { api: api.clone() }.run(events)
            });
        }
        if is_enabled("volumeattributesclass-protection-controller") {
            let mut kinds = self.core(&["PersistentVolume", "PersistentVolumeClaim"]);
            kinds.extend(self.kinds_of("storage.k8s.io", &["VolumeAttributesClass"]));
            let api = self.api.clone();
            self.tasks.restarting("volumeattributesclass-protection-controller", move || {
                let events = CacheInformer::start(&kinds, |_| true);
                VacProtectionController { api: api.clone() }.run(events)
            });
        }
    }

    /// The controllers of service accounts, their tokens and the root CA.
    fn start_service_accounts(
        &self,
        is_enabled: &dyn Fn(&str) -> bool,
    ) -> Result<(), std::io::Error> {
        let ca = self.pki.ca_cert.read_text()?;
        if is_enabled("serviceaccount-token-controller") && self.tokens.external_keys().is_some() {
            tracing::info!(
                "serviceaccount-token-controller does not run: the private key is the external signer's"
            );
        } else if is_enabled("serviceaccount-token-controller") {
            let (api, tokens, ca) = (self.api.clone(), self.tokens.clone(), ca.clone());
            let kinds = self.core(&["Secret", "ServiceAccount"]);
            self.tasks.restarting("serviceaccount-token-controller", move || {
                let (tokens, ca) = (tokens.clone(), ca.clone());
                let controller = TokensController { api: api.clone(), tokens, ca };
                controller.run(CacheInformer::start(&kinds, |event| {
                    event.resource.gvr.resource == "serviceaccounts" || event.is_token_secret()
                }))
            });
        }
        if is_enabled("legacy-serviceaccount-token-cleaner-controller") {
            let api = self.api.clone();
            self.tasks.restarting("legacy-serviceaccount-token-cleaner-controller", move || {
                LegacyServiceAccountTokenCleaner { api: api.clone() }.run()
            });
        }
        if is_enabled("serviceaccount-controller") {
            let (api, kinds) = (self.api.clone(), self.core(&["Namespace", "ServiceAccount"]));
            self.tasks.restarting("serviceaccount-controller", move || {
                let events = namespaces_and(&kinds, ServiceAccountController::NAME);
                ServiceAccountController { api: api.clone() }.run(events)
            });
        }
        if is_enabled("root-ca-certificate-publisher-controller") {
            let (api, kinds) = (self.api.clone(), self.core(&["Namespace", "ConfigMap"]));
            self.tasks.restarting("root-ca-certificate-publisher-controller", move || {
                let events = namespaces_and(&kinds, RootCaPublisher::NAME);
                RootCaPublisher { api: api.clone(), ca: ca.clone() }.run(events)
            });
        }
        Ok(())
    }

    /// Whether `--runtime-config` leaves on what a controller is about.
    fn serves_kinds_of(&self, controller: &str) -> bool {
        let (group, kind) = match controller {
            "clusterrole-aggregation-controller" => ("rbac.authorization.k8s.io", "ClusterRole"),
            "certificatesigningrequest-cleaner-controller" => {
                ("certificates.k8s.io", "CertificateSigningRequest")
            }
            "validatingadmissionpolicy-status-controller" => {
                ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy")
            }
            "service-cidr-controller" => ("networking.k8s.io", "ServiceCIDR"),
            "volumeattributesclass-protection-controller" => {
                ("storage.k8s.io", "VolumeAttributesClass")
            }
            _ => return true,
        };
        !self.kinds_of(group, &[kind]).is_empty()
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

/// Events of namespaces, and of the objects of the other kind that have this name.
fn namespaces_and(kinds: &[Arc<Kind>], name: &'static str) -> CacheInformer {
    CacheInformer::start(kinds, move |event| {
        event.resource.gvr.resource == "namespaces" || event.entry.name == name
    })
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
