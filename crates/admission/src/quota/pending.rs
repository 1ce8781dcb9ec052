//! What quotas were charged for writes that are not stored yet.
//!
//! A quota's usage is raised before the object is stored. The controller that counts the stored objects in
//! between has to add what is pending, or the usage is too low and the quota accepts too much.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use meta::{ApiError, Str};
use tokio::time::Instant;

use super::evaluator::{ResourceList, add};

/// A write that takes longer than this from the charge to the store is refused: other servers take a
/// charge for settled after [`CHARGE_SETTLED_AFTER`].
const CHARGE_LIFETIME: Duration = Duration::from_secs(5);

/// After this time the write that a charge was made for is stored or never will be, whatever became of
/// the request.
pub const CHARGE_SETTLED_AFTER: Duration = Duration::from_secs(10);

/// The pending charges of this server. Bounded by the number of requests in progress and of those that were
/// given up in the last [`CHARGE_SETTLED_AFTER`].
#[derive(Default)]
pub struct PendingCharges {
    by_quota: Mutex<ByQuota>,
    next_id: AtomicU64,
}

/// By namespace and name of the quota.
type ByQuota = HashMap<(Str, Str), Vec<Pending>>;

struct Pending {
    charge: u64,
    usage: ResourceList,
    /// Set once the outcome of the write cannot be known any more.
    expires: Option<Instant>,
}

impl PendingCharges {
    /// What a quota was charged for writes that may not be stored yet. Read it before the stored objects are
    /// counted: a write that is stored in between is then counted twice rather than not at all.
    pub fn of_quota(&self, namespace: &str, name: &str) -> ResourceList {
        let mut total = ResourceList::new();
        let (key, now) = ((Str::from(namespace), Str::from(name)), Instant::now());
        let mut by_quota = self.lock();
        if let Some(pending) = by_quota.get_mut(&key) {
            pending.retain(|pending| pending.expires.is_none_or(|expires| now < expires));
            for pending in &*pending {
                add(&mut total, &pending.usage);
            }
            if pending.is_empty() {
                by_quota.remove(&key);
            }
        }
        total
    }

    /// A charge of nothing yet.
    pub(super) fn begin(self: &Arc<Self>, namespace: &str) -> Charge {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (pending, namespace) = (self.clone(), namespace.into());
        Charge { pending, id, namespace, quotas: Vec::new(), made: Instant::now() }
    }

    fn lock(&self) -> MutexGuard<'_, ByQuota> {
        self.by_quota.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one write has charged to any number of quotas. It is dropped when the write is stored, or never
/// will be.
pub(super) struct Charge {
    pending: Arc<PendingCharges>,
    id: u64,
    namespace: Str,
    quotas: Vec<Str>,
    made: Instant,
}

impl Charge {
    /// To be called before the quota's raised usage is written.
    pub(super) fn add(&mut self, quota: &Str, usage: ResourceList) {
        let mut by_quota = self.pending.lock();
        let pending = by_quota.entry((self.namespace.clone(), quota.clone())).or_default();
        pending.push(Pending { charge: self.id, usage, expires: None });
        self.quotas.push(quota.clone());
        self.made = Instant::now();
    }

    /// Takes back what [`Self::add`] has noted: the quota was not written.
    pub(super) fn remove(&mut self, quota: &str) {
        self.quotas.retain(|charged| charged != quota);
        self.forget(quota);
    }

    fn forget(&self, quota: &str) {
        let key = (self.namespace.clone(), Str::from(quota));
        let mut by_quota = self.pending.lock();
        if let Some(pending) = by_quota.get_mut(&key) {
            pending.retain(|pending| pending.charge != self.id);
            if pending.is_empty() {
                by_quota.remove(&key);
            }
        }
    }

    /// The write may have been handed to the store, and no request waits for its outcome.
    fn abandon(mut self) {
        let expires = Instant::now() + CHARGE_SETTLED_AFTER;
        for quota in std::mem::take(&mut self.quotas) {
            let mut by_quota = self.pending.lock();
            let pending = by_quota.get_mut(&(self.namespace.clone(), quota));
            for pending in pending.into_iter().flatten() {
                if pending.charge == self.id {
                    pending.expires = Some(expires);
                }
            }
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        for quota in std::mem::take(&mut self.quotas) {
            self.forget(&quota);
        }
    }
}

/// The charges of one write, from admission until its outcome is known.
#[derive(Default)]
pub struct WriteCharges(Mutex<Vec<Charge>>);

impl WriteCharges {
    pub(super) fn hold(&self, charge: Charge) {
        self.lock().push(charge);
    }

    /// Whether the object may still be handed to the store.
    pub fn check_age(&self) -> Result<(), ApiError> {
        if self.lock().iter().any(|charge| charge.made.elapsed() > CHARGE_LIFETIME) {
            return Err(ApiError::internal("resource quota evaluation timed out"));
        }
        Ok(())
    }

    /// The outcome of the write is known.
    pub fn settle(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Charge>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WriteCharges {
    /// Not settled: the client has left while the object was being written, or the store did not answer.
    fn drop(&mut self) {
        for charge in std::mem::take(&mut *self.lock()) {
            charge.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use meta::quantity::Quantity;

    use super::*;

    fn pods(count: &str) -> ResourceList {
        ResourceList::from([("pods".into(), Quantity::parse(count).unwrap())])
    }

    #[tokio::test(start_paused = true)]
    async fn charges_are_pending_until_their_write_is_settled() {
        let charges = Arc::new(PendingCharges::default());
        let pending = || charges.of_quota("n", "q");
        let charge = |count| {
            let mut charge = charges.begin("n");
            charge.add(&"q".into(), pods(count));
            charge
        };
        let write = WriteCharges::default();
        write.hold(charge("2"));
        let dropped = charge("3");
        assert_eq!(pending(), pods("5"));
        assert_eq!(charges.of_quota("other", "q"), ResourceList::new());
        drop(dropped);
        assert_eq!(pending(), pods("2"));
        write.settle();
        drop(write);
        assert_eq!(pending(), ResourceList::new());
        let mut conflict = charge("1");
        conflict.remove("q");
        assert_eq!(pending(), ResourceList::new());
    }

    #[tokio::test(start_paused = true)]
    async fn an_abandoned_write_is_pending_until_it_cannot_be_stored_any_more() {
        let charges = Arc::new(PendingCharges::default());
        let write = WriteCharges::default();
        let mut charge = charges.begin("n");
        charge.add(&"q".into(), pods("1"));
        write.hold(charge);
        assert!(write.check_age().is_ok());
        tokio::time::advance(CHARGE_LIFETIME + Duration::from_millis(1)).await;
        assert!(write.check_age().is_err());
        drop(write);
        assert_eq!(charges.of_quota("n", "q"), pods("1"));
        tokio::time::advance(CHARGE_SETTLED_AFTER).await;
        assert_eq!(charges.of_quota("n", "q"), ResourceList::new());
        assert!(charges.lock().is_empty());
    }
}
