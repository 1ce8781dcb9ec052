//! The loops that make a server behave like a cluster, for those who have no controller manager beside
//! it. `--standalone-controllers` says which of them run.

use std::{collections::HashSet, sync::Arc};

use controllers::{
    CertificateRequestCleaner, ClaimProtection, ClusterRoleAggregation, GarbageCollector,
    InEveryNamespace, LegacyTokenController, NamespaceController, ServiceCidrController,
    UnusedTokenCleaner, VolumeProtection,
};
use registry::Kind;
use serve::pki::Pki;
use tokio::sync::mpsc;

use crate::{
    cache_informer::CacheInformer, in_process::Api, options::StandaloneControllers, tokens::Tokens,
};

/// What the loops are made from.
pub(crate) struct Standalone<'a> {
    pub(crate) api: &'a Arc<Api>,
    pub(crate) kinds: &'a [Arc<Kind>],
    /// New caches of custom resources.
    pub(crate) started: Option<mpsc::UnboundedReceiver<Arc<Kind>>>,
    pub(crate) pki: &'a Pki,
    pub(crate) tokens: &'a Arc<Tokens>,
}

impl Standalone<'_> {
    /// Starts those that are wanted.
    pub(crate) fn start(self, wanted: &StandaloneControllers) -> Result<(), std::io::Error> {
        let api = self.api.clone();
        let on = |name: &str| wanted.has(name);
        if on("namespace-controller") {
            let changes = CacheInformer::start(&self.core(&["Namespace"]), |seen| !seen.gone);
            tokio::spawn(NamespaceController { api: api.clone() }.run(changes));
        }
        self.start_service_accounts(&on)?;
        if on("clusterrole-aggregation-controller") {
            let roles = self.kinds_of("rbac.authorization.k8s.io", &["ClusterRole"]);
            let changes = CacheInformer::start(&roles, |_| true);
            tokio::spawn(ClusterRoleAggregation { api: api.clone() }.run(changes));
        }
        if on("certificatesigningrequest-cleaner-controller") {
            tokio::spawn(CertificateRequestCleaner { api: api.clone() }.run());
        }
        if on("service-cidr-controller") {
            let kinds = self.kinds_of("networking.k8s.io", &["ServiceCIDR", "IPAddress"]);
            let changes = CacheInformer::start(&kinds, |_| true);
            tokio::spawn(ServiceCidrController { api: api.clone() }.run(changes));
        }
        if on("persistentvolumeclaim-protection-controller") {
            let kinds = self.core(&["PersistentVolumeClaim", "Pod"]);
            let changes = CacheInformer::start(&kinds, |seen| {
                seen.gone || seen.resource.gvr.resource != "pods"
            });
            tokio::spawn(ClaimProtection { api: api.clone() }.run(changes));
        }
        if on("persistentvolume-protection-controller") {
            let changes =
                CacheInformer::start(&self.core(&["PersistentVolume"]), |seen| !seen.gone);
            tokio::spawn(VolumeProtection { api: api.clone() }.run(changes));
        }
        if on("garbage-collector-controller") {
            let kinds = stored_once(self.kinds);
            let changes = CacheInformer::start(&kinds, |seen| seen.gone || seen.is_bound());
            tokio::spawn(GarbageCollector { api }.run(changes.and_later(self.started)));
        }
        Ok(())
    }

    /// What every namespace has, and the tokens of accounts.
    fn start_service_accounts(&self, on: &dyn Fn(&str) -> bool) -> Result<(), std::io::Error> {
        let api = self.api;
        let certificate = std::fs::read_to_string(&self.pki.ca_cert)?;
        if on("serviceaccount-token-controller") {
            let ca = certificate.clone();
            let legacy =
                LegacyTokenController { api: api.clone(), tokens: self.tokens.clone(), ca };
            let changes = CacheInformer::start(&self.core(&["Secret", "ServiceAccount"]), |seen| {
                seen.resource.gvr.resource == "serviceaccounts" || seen.has_legacy_token()
            });
            tokio::spawn(legacy.run(changes));
        }
        if on("legacy-serviceaccount-token-cleaner-controller") {
            tokio::spawn(UnusedTokenCleaner { api: api.clone() }.run());
        }
        let everywhere = [
            (
                "serviceaccount-controller",
                "ServiceAccount",
                InEveryNamespace::service_account(api.clone()),
            ),
            (
                "root-ca-certificate-publisher-controller",
                "ConfigMap",
                InEveryNamespace::root_certificate(api.clone(), certificate),
            ),
        ];
        for (_, kind, controller) in everywhere.into_iter().filter(|(name, ..)| on(name)) {
            let name = controller.name().to_owned();
            let changes = CacheInformer::start(&self.core(&["Namespace", kind]), move |seen| {
                seen.resource.gvr.resource == "namespaces" || seen.entry.name == name
            });
            tokio::spawn(controller.run(changes));
        }
        Ok(())
    }

    fn core(&self, names: &[&str]) -> Vec<Arc<Kind>> {
        self.kinds_of("", names)
    }

    /// One version of each.
    fn kinds_of(&self, group: &str, names: &[&str]) -> Vec<Arc<Kind>> {
        let find = |name: &&str| {
            let mut kinds = self.kinds.iter().filter(|kind| kind.gvk().group == group);
            kinds.find(|kind| kind.gvk().kind == **name).cloned()
        };
        names.iter().filter_map(find).collect()
    }
}

/// The kinds whose objects may be garbage, each resource in one version. Events go by themselves.
fn stored_once(kinds: &[Arc<Kind>]) -> Vec<Arc<Kind>> {
    let mut seen = HashSet::new();
    let kinds = kinds.iter().filter(|kind| kind.gvk().kind != "Event" && kind.has_verb("delete"));
    let once = kinds.filter(|kind| {
        kind.storage.as_ref().is_some_and(|storage| seen.insert(storage.prefix.clone()))
    });
    once.cloned().collect()
}
