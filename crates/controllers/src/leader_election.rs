//! kube-apiserver's coordinated leader election (feature gate `CoordinatedLeaderElection`): components write
//! LeaseCandidates, and this controller decides which of them holds the Lease. It asks candidates whether they are
//! there before it elects one, and asks a holder to go when there is a better one.

mod election;
mod version;

use std::{sync::Arc, time::Duration};

use futures_util::future::try_join_all;
use meta::{ApiError, Value, time::Time, value};

use self::election::{LEASE_SECONDS, Step, elected, is_admissible, next_step};
use crate::{
    ApiClient, BoxFuture, Informer, ObjectEvent, ResourceRef,
    workqueue::{self, Key, ReconcileResult, Reconciler},
};

pub struct LeaderElectionController {
    pub api: Arc<dyn ApiClient>,
}

/// When a lease is looked at again, to see whether it is renewed.
const REQUEUE_INTERVAL: Duration = Duration::from_secs(5);
/// Candidates that are written at a time.
const PINGS_AT_A_TIME: usize = 16;
/// How often expired candidates are deleted.
const GC_INTERVAL: Duration = Duration::from_mins(30);

pub fn lease_candidates() -> ResourceRef {
    ResourceRef::cluster("coordination.k8s.io", "v1beta1", "leasecandidates")
}

fn leases() -> ResourceRef {
    ResourceRef::cluster("coordination.k8s.io", "v1", "leases")
}

impl LeaderElectionController {
    /// The name of the lease that the apiserver which runs this controller holds.
    pub const NAME: &str = "leader-election-controller";

    /// Runs until the server stops. `events` are events of Leases and LeaseCandidates.
    pub async fn run(self, events: impl Informer) {
        let api = self.api.clone();
        tokio::select! {
            () = workqueue::run(self, events) => {}
            () = collect_garbage(&*api) => {}
        }
    }

    /// One step in the elections of a namespace.
    async fn sync(&self, namespace: &str) -> Result<ReconcileResult, ApiError> {
        let mut candidates = self.api.list(&lease_candidates().in_namespace(namespace)).await?;
        candidates.retain(|candidate| is_admissible(candidate, Time::now()));
        candidates.sort_by(|a, b| lease_name(a).cmp(lease_name(b)));
        let mut next = ReconcileResult::Done;
        let mut failed = None;
        for candidates in candidates.chunk_by(|a, b| lease_name(a) == lease_name(b)) {
            let target = leases().in_namespace(namespace).named(lease_name(&candidates[0]));
            match self.step(&target, candidates).await {
                Ok(ReconcileResult::Done) => {}
                Ok(later) => next = later,
                // One lease must not keep the others from being looked at.
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(next), Err)
    }

    async fn step(
        &self,
        target: &ResourceRef,
        candidates: &[Value],
    ) -> Result<ReconcileResult, ApiError> {
        let lease = match self.api.get(target).await {
            Ok(lease) => Some(lease),
            Err(ApiError::NotFound { .. }) => None,
            Err(error) => return Err(error),
        };
        let now = Time::now();
        let later = Ok(ReconcileResult::RequeueAfter(REQUEUE_INTERVAL));
        match next_step(lease.as_ref(), candidates, now) {
            Ok(Step::Wait) => later,
            Ok(Step::Ping(pinged)) => {
                for some in pinged.chunks(PINGS_AT_A_TIME) {
                    try_join_all(some.iter().map(|candidate| self.ping(candidate, now))).await?;
                }
                later
            }
            Ok(Step::Elect { strategy, holder }) => {
                self.elect(target, lease, strategy, holder, now).await?;
                later
            }
            // The next event of a candidate decides.
            Err(error) => {
                let (namespace, lease) = (&target.namespace, &target.name);
                tracing::info!(namespace, lease, error, "no leader is elected");
                Ok(ReconcileResult::Done)
            }
        }
    }

    async fn ping(&self, candidate: &Value, now: Time) -> Result<(), ApiError> {
        let at = |field| candidate.str_at(&["metadata", field]);
        let target = lease_candidates().in_namespace(at("namespace")).named(at("name"));
        let mut candidate = candidate.clone();
        candidate.set_at(&["spec", "pingTime"], now.to_rfc3339_micro());
        self.api.update(&target, &candidate).await.map(drop)
    }

    async fn elect(
        &self,
        target: &ResourceRef,
        lease: Option<Value>,
        strategy: &str,
        holder: Option<&str>,
        now: Time,
    ) -> Result<(), ApiError> {
        let (namespace, name) = (target.namespace.as_str(), target.name.as_str());
        if let Some(lease) = lease {
            let Some(lease) = elected(&lease, strategy, holder, now) else { return Ok(()) };
            tracing::info!(namespace, lease = name, holder, strategy, "elected a leader");
            return self.api.update(target, &lease).await.map(drop);
        }
        let mut lease = value!({
            "kind": "Lease",
            "apiVersion": "coordination.k8s.io/v1",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "leaseDurationSeconds": (LEASE_SECONDS),
                "renewTime": (now.to_rfc3339_micro()),
                "strategy": strategy,
            },
        });
        if let Some(holder) = holder {
            lease.set_at(&["spec", "holderIdentity"], holder);
        }
        tracing::info!(namespace, lease = name, holder, strategy, "elected the first leader");
        let leases = ResourceRef { name: String::new(), ..target.clone() };
        self.api.create(&leases, &lease).await.map(drop)
    }
}

fn lease_name(candidate: &Value) -> &str {
    candidate.str_at(&["spec", "leaseName"])
}

impl Reconciler for LeaderElectionController {
    const QUEUE: &'static str = Self::NAME;

    fn keys_for(&self, event: &ObjectEvent) -> Vec<Key> {
        // A candidate that is gone does not say which lease it was for, and there are few candidates.
        vec![(event.namespace.clone(), "".into())]
    }

    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<ReconcileResult, ApiError>> {
        Box::pin(self.sync(&key.0))
    }
}

/// Deletes expired candidates, for as long as it is polled.
async fn collect_garbage(api: &dyn ApiClient) {
    loop {
        if let Err(error) = delete_expired(api).await {
            tracing::warn!("cannot delete expired LeaseCandidates: {error}");
        }
        tokio::time::sleep(GC_INTERVAL).await;
    }
}

async fn delete_expired(api: &dyn ApiClient) -> Result<(), ApiError> {
    for candidate in api.list(&lease_candidates()).await? {
        if is_admissible(&candidate, Time::now()) {
            continue;
        }
        let at = |field| candidate.str_at(&["metadata", field]);
        let target = lease_candidates().in_namespace(at("namespace")).named(at("name"));
        let options = value!({"preconditions": {"resourceVersion": (at("resourceVersion"))}});
        match api.delete(&target, &options).await {
            // Renewed or deleted meanwhile.
            Ok(()) | Err(ApiError::NotFound { .. } | ApiError::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeClient;

    fn candidate(name: &str, lease: &str, renewed: &str) -> Value {
        value!({
            "metadata": {"name": name, "namespace": "n"},
            "spec": {
                "leaseName": lease, "renewTime": renewed, "strategy": "OldestEmulationVersion",
                "emulationVersion": "1.36", "binaryVersion": "1.36",
            },
        })
    }

    #[tokio::test]
    async fn leases_of_one_namespace_are_elected_apart() {
        let now = meta::time::now_micro();
        let old = Time::now().plus(meta::time::Duration { nanos: -60_000_000_000 });
        let lease = |name: &str| value!({"metadata": {"name": name, "namespace": "n"}, "spec": {}});
        let api = FakeClient::new([
            ("leasecandidates", candidate("a", "one", &now)),
            ("leasecandidates", candidate("b", "two", &old.to_rfc3339_micro())),
            ("leasecandidates", candidate("c", "three", "2020-01-01T00:00:00.000000Z")),
            ("leases", lease("one")),
            ("leases", lease("two")),
            ("leases", lease("three")),
        ]);
        let controller = LeaderElectionController { api: api.clone() };
        let again = controller.sync("n").await.unwrap();
        assert_eq!(again, ReconcileResult::RequeueAfter(REQUEUE_INTERVAL));
        let holder =
            |name| api.object("leases", "n", name).str_at(&["spec", "holderIdentity"]).to_owned();
        assert_eq!(["one", "two", "three"].map(holder), ["a", "", ""]);
        let pinged =
            |name| api.object("leasecandidates", "n", name).at(&["spec", "pingTime"]).is_some();
        assert_eq!(["a", "b", "c"].map(pinged), [false, true, false]);

        delete_expired(&*api).await.unwrap();
        let deleted: Vec<String> = api.deleted().into_iter().map(|(name, _)| name).collect();
        assert_eq!(deleted, ["c"]);
    }
}
