//! Leader election by a Lease, as client-go does it: one of several apiservers runs a controller.

use std::{sync::Arc, time::Duration};

use meta::{ApiError, Value, value};
use tokio::{sync::Mutex, time::Instant};

use crate::{ApiClient, ResourceRef};

pub struct LeaderElector {
    api: Arc<dyn ApiClient>,
    /// In `kube-system`.
    lease: ResourceRef,
    /// Differs after each start.
    identity: String,
    timers: LeaderElectionTimers,
    observed: Mutex<Observed>,
}

#[derive(Clone, Copy, Debug)]
pub struct LeaderElectionTimers {
    pub lease_duration: Duration,
    pub renew_deadline: Duration,
    pub retry_period: Duration,
}

/// Other clocks are not relied on: a lease has expired when this apiserver has seen no change for its duration.
#[derive(Default)]
struct Observed {
    spec: Value,
    since: Option<Instant>,
    /// The lease was given up for good.
    released: bool,
}

impl LeaderElector {
    pub fn new(
        api: Arc<dyn ApiClient>,
        lease: &str,
        hostname: &str,
        timers: LeaderElectionTimers,
    ) -> Self {
        let leases = ResourceRef::cluster("coordination.k8s.io", "v1", "leases");
        Self {
            api,
            lease: leases.in_namespace("kube-system").named(lease),
            identity: format!("{hostname}_{}", uuid::Uuid::new_v4()),
            timers,
            observed: Mutex::default(),
        }
    }

    /// Runs `lead` whenever this apiserver holds the lease, until it loses it.
    pub async fn run<F: Future<Output = ()>>(&self, lead: impl Fn() -> F) {
        loop {
            while !self.try_acquire_or_renew().await {
                tokio::time::sleep(self.timers.retry_period).await;
            }
            tracing::info!(lease = self.lease.name, "became the leader");
            tokio::select! {
                () = lead() => {}
                () = self.renew() => tracing::warn!(lease = self.lease.name, "stopped leading"),
            }
        }
    }

    /// Returns when the lease could not be renewed in time.
    async fn renew(&self) {
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(self.timers.retry_period).await;
            let deadline = renewed + self.timers.renew_deadline;
            match tokio::time::timeout_at(deadline, self.try_acquire_or_renew()).await {
                Ok(true) => renewed = Instant::now(),
                Ok(false) if Instant::now() < deadline => {}
                _ => return,
            }
        }
    }

    /// Gives the lease up, so that another apiserver need not wait until it expires. It is not taken again.
    pub async fn release(&self) -> Result<(), ApiError> {
        let mut observed = self.observed.lock().await;
        observed.released = true;
        let mut lease = match self.api.get(&self.lease).await {
            Ok(lease) => lease,
            Err(ApiError::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        if lease.str_at(&["spec", "holderIdentity"]) != self.identity {
            return Ok(());
        }
        let now = meta::time::now_micro();
        lease.set_at(&["spec", "holderIdentity"], "");
        lease.set_at(&["spec", "leaseDurationSeconds"], 1i64);
        lease.set_at(&["spec", "renewTime"], now.as_str());
        lease.set_at(&["spec", "acquireTime"], now);
        self.api.update(&self.lease, &lease).await.map(drop)
    }

    /// Whether this apiserver holds the lease for another while.
    async fn try_acquire_or_renew(&self) -> bool {
        // Held to the end: a renewal that is under way must not come after the release.
        let mut observed = self.observed.lock().await;
        if observed.released {
            return false;
        }
        match self.acquire(&mut observed).await {
            Ok(is_leader) => is_leader,
            Err(error) => {
                tracing::debug!(lease = self.lease.name, "cannot acquire the lease: {error}");
                false
            }
        }
    }

    async fn acquire(&self, observed: &mut Observed) -> Result<bool, ApiError> {
        let existing = match self.api.get(&self.lease).await {
            Ok(lease) => lease,
            Err(ApiError::NotFound { .. }) => {
                let new = value!({
                    "kind": "Lease",
                    "apiVersion": "coordination.k8s.io/v1",
                    "metadata": {"name": (self.lease.name.as_str()), "namespace": "kube-system"},
                    "spec": (self.spec(None)),
                });
                let leases = ResourceRef { name: String::new(), ..self.lease.clone() };
                self.api.create(&leases, &new).await?;
                return Ok(true);
            }
            Err(error) => return Err(error),
        };
        let spec = existing.get("spec").cloned().unwrap_or_default();
        if observed.since.is_none() || observed.spec != spec {
            *observed =
                Observed { spec: spec.clone(), since: Some(Instant::now()), released: false };
        }
        let holder = spec.str_at(&["holderIdentity"]);
        let seconds = spec.i64_at(&["leaseDurationSeconds"]).unwrap_or_default();
        let duration = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        let is_valid = observed.since.is_some_and(|since| since + duration > Instant::now());
        if !holder.is_empty() && holder != self.identity && is_valid {
            return Ok(false);
        }
        let mut lease = existing;
        lease.set_at(&["spec"], self.spec(Some(&spec)));
        let stored = self.api.update(&self.lease, &lease).await?;
        observed.spec = stored.get("spec").cloned().unwrap_or_default();
        observed.since = Some(Instant::now());
        Ok(true)
    }

    /// The spec with this apiserver as the holder; `old` is that of an existing lease.
    fn spec(&self, old: Option<&Value>) -> Value {
        let now = meta::time::now_micro();
        let own = old.filter(|old| old.str_at(&["holderIdentity"]) == self.identity);
        let transitions = old.map_or(0, |old| {
            old.i64_at(&["leaseTransitions"]).unwrap_or_default() + i64::from(own.is_none())
        });
        let acquired = own.map_or(now.as_str(), |own| own.str_at(&["acquireTime"]));
        value!({
            "holderIdentity": (self.identity.as_str()),
            "leaseDurationSeconds": (self.timers.lease_duration.as_secs() as i64),
            "acquireTime": (acquired),
            "renewTime": (now.as_str()),
            "leaseTransitions": (transitions),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeClient;

    fn elector(api: &Arc<FakeClient>, seconds: u64) -> LeaderElector {
        let timers = LeaderElectionTimers {
            lease_duration: Duration::from_secs(seconds),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        };
        LeaderElector::new(api.clone(), "leader-election-controller", "host", timers)
    }

    fn lease(holder: &str) -> Value {
        value!({
            "metadata": {"name": "leader-election-controller", "namespace": "kube-system"},
            "spec": {
                "holderIdentity": (holder), "leaseDurationSeconds": 15i64, "leaseTransitions": 3i64,
                "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
            },
        })
    }

    fn stored(api: &FakeClient) -> (String, i64) {
        let lease = api.object("leases", "kube-system", "leader-election-controller");
        let transitions = lease.i64_at(&["spec", "leaseTransitions"]).unwrap();
        (lease.str_at(&["spec", "holderIdentity"]).to_owned(), transitions)
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_taken_from_a_holder_that_does_not_renew_it() {
        let api = FakeClient::new([("leases", lease("other"))]);
        let own = elector(&api, 15);
        assert!(
            !own.try_acquire_or_renew().await,
            "the holder may be alive, whatever its clock says"
        );
        tokio::time::advance(Duration::from_secs(14)).await;
        assert!(!own.try_acquire_or_renew().await);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(own.try_acquire_or_renew().await);
        assert_eq!(stored(&api), (own.identity.clone(), 4));
        assert!(own.try_acquire_or_renew().await);
        assert_eq!(stored(&api), (own.identity.clone(), 4), "a renewal is no transition");

        own.release().await.unwrap();
        assert_eq!(stored(&api), (String::new(), 4));
        assert!(!own.try_acquire_or_renew().await, "it was given up for good");
        let next = elector(&api, 15);
        assert!(next.try_acquire_or_renew().await, "without waiting");
        assert_eq!(stored(&api), (next.identity.clone(), 5));
    }

    #[tokio::test(start_paused = true)]
    async fn the_leader_leads_until_it_loses_the_lease() {
        let api = FakeClient::new([("leases", lease(""))]);
        let own = elector(&api, 15);
        let led = std::sync::atomic::AtomicUsize::new(0);
        let lead = || {
            led.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            std::future::pending()
        };
        let others = async {
            tokio::time::sleep(Duration::from_mins(1)).await;
            assert_eq!(stored(&api).0, own.identity, "it is renewed");
            api.insert("leases", lease("other"));
            tokio::time::sleep(Duration::from_secs(11)).await;
            // The other one did not renew it either.
            assert_eq!(stored(&api).0, "other");
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert_eq!(stored(&api).0, own.identity);
        };
        tokio::select! {
            () = own.run(lead) => unreachable!("it never ends"),
            () = others => {}
        }
        assert_eq!(led.load(std::sync::atomic::Ordering::Relaxed), 2);
    }
}
