//! What `apiserver_flowcontrol_*` is rendered from. The counters are plain numbers, so that a request
//! looks no label up; the server that has a metrics registry reads a [`Snapshot`].

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use meta::Str;

use crate::priority_level::RejectReason;

/// All of it at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    pub levels: Vec<Level>,
    pub schemas: Vec<Schema>,
    /// `phase` and `request_kind` of `read_vs_write_current_requests`.
    pub read_vs_write: Vec<(&'static str, &'static str, Histogram)>,
    pub seat_fair_frac: f64,
    /// `request_kind` and value of `apiserver_current_inqueue_requests`.
    pub waiting_peaks: [(&'static str, u32); 2],
}

/// A priority level.
#[derive(Debug)]
pub struct Level {
    pub name: Str,
    /// Metric name without its prefix, further label (`bound`) and value.
    pub gauges: Vec<(&'static str, &'static str, f64)>,
    /// Metric name without its prefix, further label (`phase`) and value.
    pub histograms: Vec<(&'static str, &'static str, Histogram)>,
}

/// A flow schema with the priority level that it names.
#[derive(Debug)]
pub struct Schema {
    pub level: Str,
    pub name: Str,
    /// Metric name without its prefix, value of the further label if there is one, and count.
    pub counters: Vec<(&'static str, &'static str, u64)>,
    pub gauges: Vec<(&'static str, u64)>,
    pub histograms: Vec<(&'static str, &'static str, Histogram)>,
}

/// Counts per bucket, not cumulative; the last one has no upper bound.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    pub bounds: &'static [f64],
    pub counts: Vec<u64>,
    pub sum: f64,
}

/// Counts of one flow schema at one priority level. They outlive a change of the flow schema, and
/// end with it.
#[derive(Debug)]
pub(crate) struct SchemaMetrics {
    pub(crate) level: Str,
    pub(crate) name: Str,
    pub(crate) dispatched: AtomicU64,
    rejected: [AtomicU64; RejectReason::ALL.len()],
    pub(crate) not_accommodated: AtomicU64,
    pub(crate) waiting: Gauge,
    pub(crate) seats_waiting: Gauge,
    pub(crate) executing: Gauge,
    pub(crate) seats_executing: Gauge,
    pub(crate) queue_lengths: Buckets<8>,
    pub(crate) waited_executed: Buckets<13>,
    pub(crate) waited_rejected: Buckets<13>,
    pub(crate) executed_regular: Buckets<13>,
    pub(crate) executed_watch: Buckets<13>,
    pub(crate) watch_counts: Buckets<6>,
    pub(crate) estimated_seats: Buckets<8>,
}

const QUEUE_LENGTHS: &[f64; 8] = &[0.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];
const SECONDS: &[f64; 13] =
    &[0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
const WATCH_COUNTS: &[f64; 6] = &[0.0, 1.0, 10.0, 100.0, 1000.0, 10000.0];
const SEATS: &[f64; 8] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0];

impl SchemaMetrics {
    pub(crate) fn new(level: Str, name: Str) -> Self {
        Self {
            level,
            name,
            dispatched: AtomicU64::default(),
            rejected: Default::default(),
            not_accommodated: AtomicU64::default(),
            waiting: Gauge::default(),
            seats_waiting: Gauge::default(),
            executing: Gauge::default(),
            seats_executing: Gauge::default(),
            queue_lengths: Buckets::new(QUEUE_LENGTHS, 1.0),
            waited_executed: Buckets::seconds(SECONDS),
            waited_rejected: Buckets::seconds(SECONDS),
            executed_regular: Buckets::seconds(SECONDS),
            executed_watch: Buckets::seconds(SECONDS),
            watch_counts: Buckets::new(WATCH_COUNTS, 1.0),
            estimated_seats: Buckets::new(SEATS, 1.0),
        }
    }

    pub(crate) fn reject(&self, reason: RejectReason) {
        self.rejected[reason as usize].fetch_add(1, Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn rejected(&self) -> u64 {
        self.rejected.iter().map(|count| count.load(Relaxed)).sum()
    }

    pub(crate) fn snapshot(&self) -> Schema {
        let mut counters = vec![
            ("dispatched_requests_total", "", self.dispatched.load(Relaxed)),
            ("request_dispatch_no_accommodation_total", "", self.not_accommodated.load(Relaxed)),
        ];
        for reason in RejectReason::ALL {
            let count = self.rejected[reason as usize].load(Relaxed);
            counters.push(("rejected_requests_total", reason.as_str(), count));
        }
        // Compat: a series appears with its first request.
        counters.retain(|(_, _, count)| *count > 0);
        let mut histograms = vec![
            ("request_queue_length_after_enqueue", "", self.queue_lengths.snapshot()),
            ("request_wait_duration_seconds", "true", self.waited_executed.snapshot()),
            ("request_wait_duration_seconds", "false", self.waited_rejected.snapshot()),
            ("request_execution_seconds", "regular", self.executed_regular.snapshot()),
            ("request_execution_seconds", "watch", self.executed_watch.snapshot()),
            ("watch_count_samples", "", self.watch_counts.snapshot()),
            ("work_estimated_seats", "", self.estimated_seats.snapshot()),
        ];
        histograms.retain(|(_, _, histogram)| histogram.counts.iter().any(|&count| count > 0));
        let gauges = vec![
            ("current_inqueue_requests", self.waiting.get()),
            ("current_inqueue_seats", self.seats_waiting.get()),
            ("current_executing_requests", self.executing.get()),
            ("current_executing_seats", self.seats_executing.get()),
        ];
        Schema { level: self.level.clone(), name: self.name.clone(), counters, gauges, histograms }
    }
}

/// Goes up and down; never below zero, since what is taken off was put on before.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    pub(crate) fn add(&self, amount: u32) {
        self.0.fetch_add(u64::from(amount), Relaxed);
    }

    pub(crate) fn sub(&self, amount: u32) {
        self.0.fetch_sub(u64::from(amount), Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A histogram that many requests add to.
#[derive(Debug)]
pub(crate) struct Buckets<const N: usize> {
    bounds: &'static [f64; N],
    /// In whole units: nanoseconds for durations.
    units: [u64; N],
    unit: f64,
    counts: [AtomicU64; N],
    above: AtomicU64,
    sum: AtomicU64,
}

impl<const N: usize> Buckets<N> {
    fn new(bounds: &'static [f64; N], per_unit: f64) -> Self {
        Self {
            bounds,
            units: bounds.map(|bound| (bound * per_unit) as u64),
            unit: per_unit,
            counts: std::array::from_fn(|_| AtomicU64::default()),
            above: AtomicU64::default(),
            sum: AtomicU64::default(),
        }
    }

    fn seconds(bounds: &'static [f64; N]) -> Self {
        Self::new(bounds, 1e9)
    }

    pub(crate) fn observe(&self, value: u64) {
        let at = self.units.iter().position(|&bound| value <= bound);
        at.map_or(&self.above, |at| &self.counts[at]).fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    pub(crate) fn observe_duration(&self, duration: Duration) {
        self.observe(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    fn snapshot(&self) -> Histogram {
        let mut counts: Vec<u64> = self.counts.iter().map(|count| count.load(Relaxed)).collect();
        counts.push(self.above.load(Relaxed));
        let sum = self.sum.load(Relaxed) as f64 / self.unit;
        Histogram { bounds: self.bounds, counts, sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observations_are_counted_in_their_bucket() {
        let buckets = Buckets::seconds(SECONDS);
        for millis in [0, 3, 5, 6, 40_000] {
            buckets.observe_duration(Duration::from_millis(millis));
        }
        let snapshot = buckets.snapshot();
        assert_eq!(snapshot.counts, [1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert!((snapshot.sum - 40.014).abs() < 1e-9);
    }

    #[test]
    fn a_series_appears_with_its_first_request() {
        let metrics = SchemaMetrics::new("level".into(), "schema".into());
        assert!(metrics.snapshot().counters.is_empty());
        metrics.reject(RejectReason::TimeOut);
        assert_eq!(metrics.snapshot().counters, [("rejected_requests_total", "time-out", 1)]);
        assert!(metrics.snapshot().histograms.is_empty());
    }
}
