//! `workqueue_*`: how busy the queues of the controllers are. One set for the process, as client-go has it.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
    core::{Collector, Desc},
    exponential_buckets,
    proto::MetricFamily,
};

static FAMILIES: LazyLock<Families> = LazyLock::new(Families::new);

struct Families {
    adds: IntCounterVec,
    depth: IntGaugeVec,
    retries: IntCounterVec,
    waits: HistogramVec,
    work: HistogramVec,
    in_progress: InProgress,
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
            in_progress: InProgress::new(),
        }
    }
}

/// What is being reconciled, as of each scrape: a reconciliation that hangs shows up in no event.
#[derive(Clone)]
struct InProgress {
    unfinished: GaugeVec,
    longest: GaugeVec,
    queues: Arc<Mutex<BTreeMap<String, Began>>>,
}

/// When the reconciliations of a queue began, by their numbers.
type Began = Arc<Mutex<BTreeMap<u64, Instant>>>;

impl InProgress {
    fn new() -> Self {
        let gauge = |name: &str, help: &str| {
            GaugeVec::new(Opts::new(name, help), &["name"]).expect("valid names")
        };
        Self {
            unfinished: gauge(
                "workqueue_unfinished_work_seconds",
                "Time that reconciliations under way have taken, summed up.",
            ),
            longest: gauge(
                "workqueue_longest_running_processor_seconds",
                "Time that the longest reconciliation under way has taken.",
            ),
            queues: Arc::default(),
        }
    }

    fn of(&self, queue: &str) -> Began {
        self.queues.lock().entry(queue.to_owned()).or_default().clone()
    }
}

impl Collector for InProgress {
    fn desc(&self) -> Vec<&Desc> {
        let mut descs = self.unfinished.desc();
        descs.extend(self.longest.desc());
        descs
    }

    fn collect(&self) -> Vec<MetricFamily> {
        for (queue, began) in &*self.queues.lock() {
            let (mut sum, mut longest) = (0.0, 0.0_f64);
            for began in began.lock().values() {
                let seconds = began.elapsed().as_secs_f64();
                sum += seconds;
                longest = longest.max(seconds);
            }
            self.unfinished.with_label_values(&[queue]).set(sum);
            self.longest.with_label_values(&[queue]).set(longest);
        }
        let mut families = self.unfinished.collect();
        families.extend(self.longest.collect());
        families
    }
}

/// A reconciliation under way.
pub(crate) struct Working {
    began: Began,
    number: u64,
}

impl Drop for Working {
    fn drop(&mut self) {
        self.began.lock().remove(&self.number);
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
    register(Box::new(families.work.clone()))?;
    register(Box::new(families.in_progress.clone()))
}

/// The metrics of one queue.
#[derive(Clone)]
pub(crate) struct QueueMetrics {
    adds: IntCounter,
    depth: IntGauge,
    retries: IntCounter,
    waits: Histogram,
    work: Histogram,
    began: Began,
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
            began: FAMILIES.in_progress.of(queue),
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

    /// Counts a reconciliation as under way until the guard is dropped.
    pub(crate) fn working(&self) -> Working {
        let mut began = self.began.lock();
        let number = began.last_key_value().map_or(0, |(last, _)| last + 1);
        began.insert(number, Instant::now());
        Working { began: self.began.clone(), number }
    }

    pub(crate) fn worked(&self, took: Duration) {
        self.work.observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reconciliation_that_hangs_is_seen_while_it_hangs() {
        let metrics = QueueMetrics::of("hanging");
        let seconds = |family: &str| {
            let families = FAMILIES.in_progress.collect();
            let family = families.into_iter().find(|found| found.name() == family);
            let metrics = family.expect("the family is there").get_metric().to_vec();
            let own = metrics
                .into_iter()
                .find(|metric| metric.get_label().iter().any(|label| label.value() == "hanging"));
            own.expect("the queue is there").get_gauge().get_value()
        };
        let (longest, unfinished) =
            ("workqueue_longest_running_processor_seconds", "workqueue_unfinished_work_seconds");
        assert!(seconds(longest) <= 0.0);
        let first = metrics.working();
        let second = metrics.working();
        while seconds(longest) < 0.002 {
            std::hint::spin_loop();
        }
        assert!(seconds(unfinished) >= 0.003);
        drop(first);
        assert!(seconds(unfinished) >= 0.001);
        drop(second);
        assert!(seconds(unfinished) <= 0.0);
    }
}
