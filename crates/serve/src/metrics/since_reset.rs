//! `DELETE /metrics` for the metrics of all parts of the server, also of those that only hand over values when they
//! are read: what had been counted until then is subtracted from what is shown.

use std::collections::HashMap;

use parking_lot::Mutex;
use prometheus::proto::{Bucket, Counter, Histogram, Metric, MetricFamily, MetricType, Summary};

/// What was shown when the metrics were reset, by the name of the metric and its labels.
#[derive(Default)]
pub(super) struct SinceReset(Mutex<HashMap<String, HashMap<String, Metric>>>);

/// Compat: kube-apiserver does not reset those of the process either.
const KEPT: &str = "process_";

impl SinceReset {
    pub(super) fn reset(&self, shown: Vec<MetricFamily>) {
        let counted = |family: &MetricFamily| {
            let is_counted = family.get_field_type() != MetricType::GAUGE;
            is_counted && !family.name().starts_with(KEPT)
        };
        let values = shown.into_iter().filter(counted).map(|mut family| {
            let values = family.take_metric().into_iter().map(|metric| (key(&metric), metric));
            (family.name().to_owned(), values.collect())
        });
        *self.0.lock() = values.collect();
    }

    /// What was counted since the last reset. Compat: labels without a count since then are not shown.
    pub(super) fn apply(&self, mut families: Vec<MetricFamily>) -> Vec<MetricFamily> {
        let mut resets = self.0.lock();
        if resets.is_empty() {
            return families;
        }
        for family in &mut families {
            let Some(before) = resets.get_mut(family.name()) else { continue };
            let kind = family.get_field_type();
            family.mut_metric().retain_mut(|metric| {
                let key = key(metric);
                let Some(then) = before.get(&key) else { return true };
                let counted = match kind {
                    MetricType::COUNTER => subtract_counter(metric, then.get_counter()),
                    MetricType::HISTOGRAM => subtract_histogram(metric, then.get_histogram()),
                    MetricType::SUMMARY => subtract_summary(metric, then.get_summary()),
                    _ => Some(true),
                };
                match counted {
                    Some(any) => any || metric.get_label().is_empty(),
                    None => {
                        // It has begun anew by itself meanwhile.
                        before.remove(&key);
                        true
                    }
                }
            });
        }
        // The encoder refuses families without a value.
        families.retain(|family| !family.get_metric().is_empty());
        families
    }
}

fn key(metric: &Metric) -> String {
    metric
        .get_label()
        .iter()
        .map(|label| format!("{}={:?},", label.name(), label.value()))
        .collect()
}

/// Whether something is left; None: the count is lower than it was.
fn subtract_counter(metric: &mut Metric, then: &Counter) -> Option<bool> {
    let left = metric.get_counter().get_value() - then.get_value();
    if left < 0.0 {
        return None;
    }
    let mut counter = Counter::default();
    counter.set_value(left);
    metric.set_counter(counter);
    Some(left > 0.0)
}

fn subtract_histogram(metric: &mut Metric, then: &Histogram) -> Option<bool> {
    let now = metric.get_histogram();
    let count = now.get_sample_count().checked_sub(then.get_sample_count())?;
    let buckets = now.get_bucket().iter().zip(then.get_bucket()).map(|(now, then)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(now.upper_bound());
        bucket.set_cumulative_count(now.cumulative_count().checked_sub(then.cumulative_count())?);
        Some(bucket)
    });
    let buckets: Vec<Bucket> = buckets.collect::<Option<_>>()?;
    let mut histogram = Histogram::default();
    histogram.set_sample_count(count);
    histogram.set_sample_sum(now.get_sample_sum() - then.get_sample_sum());
    histogram.set_bucket(buckets);
    metric.set_histogram(histogram);
    Some(count > 0)
}

/// The quantiles are of the last minutes and stay.
fn subtract_summary(metric: &mut Metric, then: &Summary) -> Option<bool> {
    let mut summary = metric.get_summary().clone();
    let count = summary.sample_count().checked_sub(then.sample_count())?;
    let sum = summary.sample_sum() - then.sample_sum();
    summary.set_sample_count(count);
    summary.set_sample_sum(sum);
    metric.set_summary(summary);
    Some(count > 0)
}

#[cfg(test)]
mod tests {
    use prometheus::{
        HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
        TextEncoder,
    };

    use super::*;

    #[test]
    fn every_counter_and_histogram_begins_anew_whoever_owns_it() {
        let registry = Registry::new();
        let one = IntCounter::new("one", "h").unwrap();
        let many = IntCounterVec::new(Opts::new("many", "h"), &["l"]).unwrap();
        let times = HistogramOpts::new("times", "h").buckets(vec![1.0, 2.0]);
        let times = HistogramVec::new(times, &["l"]).unwrap();
        let up = IntGauge::new("up", "h").unwrap();
        let process = IntCounter::new("process_cpu", "h").unwrap();
        for metric in [
            Box::new(one.clone()) as Box<dyn prometheus::core::Collector>,
            Box::new(many.clone()),
            Box::new(times.clone()),
            Box::new(up.clone()),
            Box::new(process.clone()),
        ] {
            registry.register(metric).unwrap();
        }
        let resets = SinceReset::default();
        let shown = || {
            let text = TextEncoder::new().encode_to_string(&resets.apply(registry.gather()));
            let text = text.unwrap();
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        one.inc_by(2);
        many.with_label_values(&["a"]).inc_by(3);
        many.with_label_values(&["b"]).inc();
        times.with_label_values(&["a"]).observe(0.5);
        up.set(7);
        process.inc();
        resets.reset(registry.gather());
        assert_eq!(shown(), ["one 0", "process_cpu 1", "up 7"]);
        one.inc();
        many.with_label_values(&["b"]).inc();
        times.with_label_values(&["a"]).observe(1.5);
        assert_eq!(
            shown(),
            [
                "many{l=\"b\"} 1",
                "one 1",
                "process_cpu 1",
                "times_bucket{l=\"a\",le=\"1\"} 0",
                "times_bucket{l=\"a\",le=\"2\"} 1",
                "times_bucket{l=\"a\",le=\"+Inf\"} 1",
                "times_sum{l=\"a\"} 1.5",
                "times_count{l=\"a\"} 1",
                "up 7"
            ]
        );
        // One that its owner resets is shown as it is.
        many.reset();
        many.with_label_values(&["a"]).inc();
        assert!(shown().contains(&"many{l=\"a\"} 1".to_owned()), "{:?}", shown());
    }
}
