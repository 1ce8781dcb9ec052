//! Quotas for unit tests.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use meta::{ApiError, GroupResource, Value};

use super::{PendingCharges, QuotaAccessor};
use crate::BoxFuture;

/// A cluster without quotas.
#[derive(Default)]
pub(crate) struct NoQuotas(Arc<PendingCharges>);

impl QuotaAccessor for NoQuotas {
    fn has_quotas(&self, _namespace: &str) -> bool {
        false
    }

    fn quotas<'a>(&'a self, _namespace: &'a str) -> BoxFuture<'a, Result<Vec<Value>, ApiError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn update_status<'a>(&'a self, _quota: &'a Value) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn pending(&self) -> &Arc<PendingCharges> {
        &self.0
    }
}

/// Quotas in memory, written by compare-and-swap as the store does it.
#[derive(Default)]
pub(crate) struct MemoryQuotas {
    pub(crate) quotas: Mutex<Vec<Value>>,
    pub(crate) writes: AtomicUsize,
    /// So many writes fail, as if another server had been faster.
    pub(crate) conflicts: AtomicUsize,
    pub(crate) pending: Arc<PendingCharges>,
}

impl QuotaAccessor for MemoryQuotas {
    fn has_quotas(&self, _namespace: &str) -> bool {
        !self.quotas.lock().unwrap().is_empty()
    }

    fn quotas<'a>(&'a self, _namespace: &'a str) -> BoxFuture<'a, Result<Vec<Value>, ApiError>> {
        Box::pin(async {
            tokio::task::yield_now().await;
            Ok(self.quotas.lock().unwrap().clone())
        })
    }

    fn update_status<'a>(&'a self, quota: &'a Value) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            let name = quota.str_at(&["metadata", "name"]);
            let conflict = || ApiError::Conflict {
                resource: GroupResource::new("", "resourcequotas"),
                name: name.to_owned(),
                why: "the object has been modified".to_owned(),
            };
            let lost = self
                .conflicts
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            let mut quotas = self.quotas.lock().unwrap();
            let known = quotas.iter_mut().find(|known| known.str_at(&["metadata", "name"]) == name);
            let known = known.ok_or_else(conflict)?;
            let version = |quota: &Value| quota.str_at(&["metadata", "resourceVersion"]).to_owned();
            if lost.is_ok() || version(known) != version(quota) {
                return Err(conflict());
            }
            *known = quota.clone();
            let next = version(known).parse::<u64>().unwrap_or_default() + 1;
            known.set_at(&["metadata", "resourceVersion"], next.to_string());
            self.writes.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
    }

    fn pending(&self) -> &Arc<PendingCharges> {
        &self.pending
    }
}
