//! Counters of the reads that a cache serves. Adding is one or two instructions, since some of it happens
//! with every request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters of one resource.
#[derive(Debug)]
pub struct ReadMetrics {
    /// Lists that the cache served.
    pub cache_lists: ListCounters,
    /// Those of them that an index made short.
    pub indexed_lists: ListCounters,
    /// Lists that the backend served: filling the cache, and states that memory does not have.
    pub storage_lists: ListCounters,
    /// Objects that watches began with.
    pub initial_events: AtomicU64,
    /// Lists of the newest state, by whether the cache reached it in time.
    pub consistent_reads: AtomicU64,
    pub consistent_reads_failed: AtomicU64,
    /// Time until the cache had reached a revision.
    pub read_wait: DurationHistogram,
    /// Answers of the backend that nothing has changed up to a revision.
    pub bookmarks: AtomicU64,
    /// Comparisons of the cache with the backend, by their outcome.
    pub checks_passed: AtomicU64,
    pub checks_failed: AtomicU64,
    pub checks_impossible: AtomicU64,
}

impl Default for ReadMetrics {
    fn default() -> Self {
        Self {
            cache_lists: ListCounters::default(),
            indexed_lists: ListCounters::default(),
            storage_lists: ListCounters::default(),
            initial_events: AtomicU64::new(0),
            consistent_reads: AtomicU64::new(0),
            consistent_reads_failed: AtomicU64::new(0),
            read_wait: DurationHistogram::new(&READ_WAIT_SECONDS),
            bookmarks: AtomicU64::new(0),
            checks_passed: AtomicU64::new(0),
            checks_failed: AtomicU64::new(0),
            checks_impossible: AtomicU64::new(0),
        }
    }
}

/// As upstream.
const READ_WAIT_SECONDS: [f64; 13] =
    [0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0];

/// Lists, the objects that were looked at for them, and those that were returned.
#[derive(Debug, Default)]
pub struct ListCounters {
    pub lists: AtomicU64,
    pub fetched: AtomicU64,
    pub returned: AtomicU64,
}

impl ListCounters {
    pub fn begin(&self) {
        self.lists.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds a part of a list.
    pub fn add(&self, fetched: usize, returned: usize) {
        self.fetched.fetch_add(fetched as u64, Ordering::Relaxed);
        self.returned.fetch_add(returned as u64, Ordering::Relaxed);
    }
}

/// A histogram of durations that is shared without a lock.
#[derive(Debug)]
pub struct DurationHistogram {
    /// Upper bounds in seconds, ascending.
    pub bounds: &'static [f64],
    /// One more than bounds.
    counts: Box<[AtomicU64]>,
    nanoseconds: AtomicU64,
}

impl DurationHistogram {
    pub fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, nanoseconds: AtomicU64::new(0) }
    }

    pub fn observe(&self, duration: Duration) {
        if duration.is_zero() {
            self.counts[0].fetch_add(1, Ordering::Relaxed);
            return;
        }
        let seconds = duration.as_secs_f64();
        let at = self.bounds.partition_point(|bound| *bound < seconds);
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Cumulative counts by bound, and all.
    pub fn cumulative(&self) -> Vec<u64> {
        let mut sum = 0;
        let counts = self.counts.iter().map(|count| {
            sum += count.load(Ordering::Relaxed);
            sum
        });
        counts.collect()
    }

    pub fn sum_seconds(&self) -> f64 {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_by_the_bound_they_stay_within() {
        let histogram = DurationHistogram::new(&[0.1, 1.0]);
        for milliseconds in [0, 100, 101, 1000, 5000] {
            histogram.observe(Duration::from_millis(milliseconds));
        }
        assert_eq!(histogram.cumulative(), [2, 4, 5]);
        assert!((histogram.sum_seconds() - 6.201).abs() < 1e-9);
    }
}
