//! Compares a cache with its backend: kube-apiserver's consistency check of watch caches. A cache that
//! differs is filled again.

use std::sync::atomic::Ordering;

use meta::Str;

use crate::{Cache, KeyValue, Range, Snapshot, StoreError};

/// The outcome of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consistency {
    /// Cache and backend have the same objects at this revision.
    Same { revision: u64 },
    /// The first key in which they differ. The cache is being filled again.
    Different { revision: u64, key: Str },
}

/// Objects that are in memory at a time while the backend is read.
const PAGE_OBJECTS: usize = 500;

impl Cache {
    /// Compares keys and revisions with the backend's, both at one revision, and counts the outcome.
    pub async fn check_consistency(&self) -> Result<Consistency, StoreError> {
        let metrics = self.read_metrics();
        let found = self.compare().await;
        let counter = match &found {
            Ok(Consistency::Same { .. }) => &metrics.checks_passed,
            Ok(Consistency::Different { .. }) => &metrics.checks_failed,
            Err(_) => &metrics.checks_impossible,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if let Ok(Consistency::Different { revision, key }) = &found {
            tracing::error!(%key, revision, "Cache consistency check failed");
            self.relist();
        }
        found
    }

    async fn compare(&self) -> Result<Consistency, StoreError> {
        if !self.is_ready() {
            return Err(StoreError::Unavailable("cache is not ready".to_owned()));
        }
        // The revision of a quiet resource may be compacted; that of a fresh read is not.
        let snapshot = self.fresh().await?;
        let revision = snapshot.revision;
        let mut range = Range::of(self.prefix().clone()).limit(PAGE_OBJECTS);
        range.revision = Some(revision);
        loop {
            let page = self.backend().range(range.clone()).await?;
            let after = range.after.as_deref();
            if let Some(key) = first_difference(&snapshot, self.prefix(), after, &page.items) {
                return Ok(Consistency::Different { revision, key });
            }
            range.after = page.items.last().map(|item| item.key.clone()).or(range.after);
            if !page.more {
                return Ok(surplus(&snapshot, self.prefix(), range.after.as_deref()));
            }
        }
    }
}

/// The first key in which a page of the backend differs from the cache.
fn first_difference(
    snapshot: &Snapshot,
    prefix: &str,
    after: Option<&str>,
    page: &[KeyValue],
) -> Option<Str> {
    let mut cached = snapshot.range(prefix, after);
    for item in page {
        // It exists, and the cache says that it cannot be read.
        if snapshot.broken(&item.key).is_some() {
            continue;
        }
        match cached.next() {
            None => return Some(item.key.clone()),
            Some(entry) if entry.key != item.key || entry.revision != item.mod_revision => {
                return Some(entry.key.clone().min(item.key.clone()));
            }
            Some(_) => {}
        }
    }
    None
}

/// Whether the cache has objects after the backend's last one.
fn surplus(snapshot: &Snapshot, prefix: &str, after: Option<&str>) -> Consistency {
    let revision = snapshot.revision;
    match snapshot.range(prefix, after).next() {
        Some(entry) => Consistency::Different { revision, key: entry.key.clone() },
        None => Consistency::Same { revision },
    }
}
