//! Coordinated leader election: one API server of the cluster elects the leaders of components.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use controllers::{LeaderElectionController, LeaderElector, ResourceRef, lease_candidates};

use super::identity_lease::hostname;
use crate::{cache_informer::CacheInformer, post_start_hooks::HookContext};

/// The hook that starts the controller, and the one that lets another server take over.
#[derive(Clone, Default)]
pub(super) struct LeaderElectionHooks(Arc<OnceLock<Arc<LeaderElector>>>);

impl LeaderElectionHooks {
    pub(super) fn start(self, cx: &HookContext) {
        let leases = ResourceRef::cluster("coordination.k8s.io", "v1", "leases");
        let Some(leases) = cx.kind_of(&leases.gvr) else { return };
        let timers = cx.options.coordinated_leadership;
        let elector =
            LeaderElector::new(cx.api.clone(), LeaderElectionController::NAME, &hostname(), timers);
        let elector = Arc::new(elector);
        drop(self.0.set(elector.clone()));
        let candidates = cx.kind_of(&lease_candidates().gvr);
        if candidates.is_none() {
            // Compat: kube-apiserver's controller waits for them too.
            tracing::warn!(
                "no leaders are elected without --runtime-config=coordination.k8s.io/v1beta1=true"
            );
        }
        let api = cx.api.clone();
        cx.tasks.restarting("leader-election-controller", move || {
            let (elector, api) = (elector.clone(), api.clone());
            let (leases, candidates) = (leases.clone(), candidates.clone());
            async move {
                let lead = || async {
                    let Some(candidates) = &candidates else { return std::future::pending().await };
                    let events =
                        CacheInformer::start(&[leases.clone(), candidates.clone()], |_| true);
                    LeaderElectionController { api: api.clone() }.run(events).await;
                };
                elector.run(lead).await;
            }
        });
    }

    /// Gives the lease up.
    pub(super) async fn stop(self) -> Result<(), String> {
        let Some(elector) = self.0.get() else { return Ok(()) };
        let released = tokio::time::timeout(RELEASE_TIMEOUT, elector.release()).await;
        released.map_err(|_| "the store does not answer".to_owned())?.map_err(|e| e.to_string())
    }
}

/// A store that does not answer must not block the shutdown.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
