//! `workqueue_*`: how busy the queues of the controllers are. One set for the process, as client-go has it.

use std::{sync::LazyLock, time::Duration};

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, exponential_buckets,
};

static FAMILIES: LazyLock<Families> = LazyLock::new(Families::new);

struct Families {
    adds: IntCounterVec,
    depth: IntGaugeVec,
    retries: IntCounterVec,
    waits: HistogramVec,
    work: HistogramVec,
}

impl Families {
    fn new() -> Self {
        let counter = |name: &str, help: &str| {
            IntCounterVec::new(Opts::new(name, help), &["name"]).expect("valid names")
        };
        let histogram = |name: &str, help: &str| {
            // As upstream: 10 ns to 1000 s.
            let buckets = exponential_buckets(1e-8, 10.0, 12).expect("valid buckets");
            let options = HistogramOpts::new(name, help).buckets(buckets);
            HistogramVec::new(options, &["name"]).expect("valid names")
        };
        let depth = Opts::new("workqueue_depth", "Keys in the queue.");
        Self {
            adds: counter("workqueue_adds_total", "Keys that were added."),
            depth: IntGaugeVec::new(depth, &["name"]).expect("valid names"),
            retries: counter("workqueue_retries_total", "Keys that were added again."),
            waits: histogram("workqueue_queue_duration_seconds", "Time of a key in the queue."),
            work: histogram("workqueue_work_duration_seconds", "Time of a reconciliation."),
        }
    }
}

/// Makes the metrics of all queues part of a registry.
pub fn register_workqueue_metrics(registry: &Registry) -> Result<(), String> {
    let families = &*FAMILIES;
    let register = |metric| registry.register(metric).map_err(|error| error.to_string());
    register(Box::new(families.adds.clone()))?;
    register(Box::new(families.depth.clone()))?;
    register(Box::new(families.retries.clone()))?;
    register(Box::new(families.waits.clone()))?;
    register(Box::new(families.work.clone()))
}

/// The metrics of one queue.
#[derive(Clone)]
pub(crate) struct QueueMetrics {
    adds: IntCounter,
    depth: IntGauge,
    retries: IntCounter,
    waits: Histogram,
    work: Histogram,
}

impl Default for QueueMetrics {
    /// Of a queue without a name: tests have them.
    fn default() -> Self {
        Self::of("")
    }
}

impl QueueMetrics {
    pub(crate) fn of(queue: &str) -> Self {
        let labels = [queue];
        Self {
            adds: FAMILIES.adds.with_label_values(&labels),
            depth: FAMILIES.depth.with_label_values(&labels),
            retries: FAMILIES.retries.with_label_values(&labels),
            waits: FAMILIES.waits.with_label_values(&labels),
            work: FAMILIES.work.with_label_values(&labels),
        }
    }

    pub(crate) fn added(&self, depth: usize) {
        self.adds.inc();
        self.depth.set(depth as i64);
    }

    pub(crate) fn taken(&self, waited: Duration, depth: usize) {
        self.waits.observe(waited.as_secs_f64());
        self.depth.set(depth as i64);
    }

    pub(crate) fn retried(&self) {
        self.retries.inc();
    }

    pub(crate) fn worked(&self, took: Duration) {
        self.work.observe(took.as_secs_f64());
    }
}
