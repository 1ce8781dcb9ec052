//! Metrics of watch events.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use meta::RequestInfo;
use store::DurationHistogram;

/// Counts by size. Adding is two instructions, since it happens with every event of every watcher.
#[derive(Debug, Default)]
pub struct WatchMetrics {
    by_size: [AtomicU64; SIZES.len() + 1],
    bytes: AtomicU64,
    /// By [`WatchScope`]; most kinds are never listed by a watch.
    initial_events: [OnceLock<DurationHistogram>; WatchScope::ALL.len()],
}

/// The label `scope` of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchScope {
    Cluster,
    Namespace,
    Resource,
}

impl WatchScope {
    pub const ALL: [Self; 3] = [Self::Cluster, Self::Namespace, Self::Resource];

    pub(crate) fn of(info: &RequestInfo) -> Self {
        if !info.name.is_empty() {
            Self::Resource
        } else if info.namespace.is_empty() {
            Self::Cluster
        } else {
            Self::Namespace
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Namespace => "namespace",
            Self::Resource => "resource",
        }
    }
}

/// As upstream.
const INITIAL_EVENTS_SECONDS: [f64; 17] =
    [0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0];

/// The bucket bounds in bytes; as upstream.
pub const SIZES: [usize; 8] = [1024, 2048, 4096, 8192, 16384, 32768, 65536, 131_072];

impl WatchMetrics {
    pub(crate) fn sent(&self, bytes: usize) {
        let at = SIZES.partition_point(|&bound| bound < bytes);
        self.by_size[at].fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A watch has sent the bookmark after its initial events.
    pub(crate) fn initial_events_sent(&self, scope: WatchScope, took: Duration) {
        let new = || DurationHistogram::new(&INITIAL_EVENTS_SECONDS);
        self.initial_events[scope as usize].get_or_init(new).observe(took);
    }

    /// How long initial events took, for the scopes that were watched.
    pub fn initial_events(&self) -> impl Iterator<Item = (WatchScope, &DurationHistogram)> {
        let by_scope = WatchScope::ALL.into_iter().zip(&self.initial_events);
        by_scope.filter_map(|(scope, durations)| Some((scope, durations.get()?)))
    }

    /// Cumulative events per bound of [`SIZES`], and all of them.
    pub fn cumulative(&self) -> [u64; SIZES.len() + 1] {
        let mut sum = 0;
        std::array::from_fn(|at| {
            sum += self.by_size[at].load(Ordering::Relaxed);
            sum
        })
    }

    /// Bytes of all events.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_by_the_bound_they_stay_within() {
        let watched = WatchMetrics::default();
        for bytes in [1, 1024, 1025, 131_072, 131_073] {
            watched.sent(bytes);
        }
        assert_eq!(watched.cumulative(), [2, 3, 3, 3, 3, 3, 3, 4, 5]);
        assert_eq!(watched.bytes(), 1 + 1024 + 1025 + 131_072 + 131_073);
    }
}
