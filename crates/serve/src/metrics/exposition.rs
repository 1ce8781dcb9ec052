//! What of the metrics is shown: `--disabled-metrics` leaves families out, `--allow-metric-labels` folds
//! label values that are not on a list into one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use prometheus::proto::{Metric, MetricFamily, MetricType};

/// Made from the flags.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetricsConfig {
    /// Names of families that are left out.
    pub disabled: BTreeSet<String>,
    /// The values that a label of a metric may have, by both names.
    pub allowed: BTreeMap<(String, String), BTreeSet<String>>,
}

/// Compat: what other values are counted as.
const UNEXPECTED: &str = "unexpected";

impl MetricsConfig {
    /// Reads pairs of `metric,label` and `value,value`.
    pub fn allow<'a>(
        &mut self,
        pairs: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), String> {
        for (key, values) in pairs {
            let Some((metric, label)) = key.split_once(',') else {
                return Err(format!("{key:?} is not of the form metric,label"));
            };
            let key = (metric.trim().to_owned(), label.trim().to_owned());
            let values =
                values.trim_matches(['\'', '"']).split(',').map(|value| value.trim().to_owned());
            self.allowed.insert(key, values.collect());
        }
        Ok(())
    }

    pub(super) fn apply(&self, families: Vec<MetricFamily>) -> Vec<MetricFamily> {
        if *self == Self::default() {
            return families;
        }
        let shown = families.into_iter().filter(|family| !self.disabled.contains(family.name()));
        shown.map(|family| self.fold(family)).collect()
    }

    fn fold(&self, mut family: MetricFamily) -> MetricFamily {
        let name = family.name().to_owned();
        let mut folded = false;
        for metric in family.mut_metric() {
            let mut labels = metric.get_label().to_vec();
            for label in &mut labels {
                let allowed = self.allowed.get(&(name.clone(), label.name().to_owned()));
                if allowed.is_some_and(|allowed| !allowed.contains(label.value())) {
                    label.set_value(UNEXPECTED.to_owned());
                    folded = true;
                }
            }
            metric.set_label(labels);
        }
        if folded {
            let kind = family.get_field_type();
            let metrics = merge(family.get_metric(), kind);
            family.set_metric(metrics);
        }
        family
    }
}

/// Adds up the metrics whose labels have become the same.
fn merge(metrics: &[Metric], kind: MetricType) -> Vec<Metric> {
    let mut merged: Vec<Metric> = Vec::new();
    let mut places: HashMap<Vec<(String, String)>, usize> = HashMap::new();
    for metric in metrics {
        let labels = metric.get_label().iter();
        let labels = labels.map(|label| (label.name().to_owned(), label.value().to_owned()));
        let place = *places.entry(labels.collect()).or_insert(merged.len());
        if place == merged.len() {
            merged.push(metric.clone());
        } else {
            add(&mut merged[place], metric, kind);
        }
    }
    merged
}

fn add(sum: &mut Metric, other: &Metric, kind: MetricType) {
    match kind {
        MetricType::COUNTER => {
            let mut counter = sum.get_counter().clone();
            counter.set_value(counter.get_value() + other.get_counter().get_value());
            sum.set_counter(counter);
        }
        MetricType::HISTOGRAM => {
            let (mut histogram, more) = (sum.get_histogram().clone(), other.get_histogram());
            histogram.set_sample_count(histogram.get_sample_count() + more.get_sample_count());
            histogram.set_sample_sum(histogram.get_sample_sum() + more.get_sample_sum());
            let mut buckets = histogram.get_bucket().to_vec();
            for (bucket, more) in buckets.iter_mut().zip(more.get_bucket()) {
                bucket.set_cumulative_count(bucket.cumulative_count() + more.cumulative_count());
            }
            histogram.set_bucket(buckets);
            sum.set_histogram(histogram);
        }
        _ => {
            let mut gauge = sum.get_gauge().clone();
            gauge.set_value(gauge.get_value() + other.get_gauge().get_value());
            sum.set_gauge(gauge);
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

    use super::*;

    #[test]
    fn values_that_are_not_allowed_are_counted_together() {
        let registry = Registry::new();
        let counter = IntCounterVec::new(Opts::new("requests", "."), &["verb"]).unwrap();
        let options = HistogramOpts::new("sizes", ".").buckets(vec![1.0]);
        let histogram = HistogramVec::new(options, &["verb"]).unwrap();
        let other = IntCounterVec::new(Opts::new("other", "."), &["verb"]).unwrap();
        registry.register(Box::new(counter.clone())).unwrap();
        registry.register(Box::new(histogram.clone())).unwrap();
        registry.register(Box::new(other.clone())).unwrap();
        for verb in ["GET", "LIST", "WATCH"] {
            counter.with_label_values(&[verb]).inc();
            histogram.with_label_values(&[verb]).observe(2.0);
            other.with_label_values(&[verb]).inc();
        }
        let mut config = MetricsConfig::default();
        config.allow([("requests,verb", "GET"), ("sizes,verb", "'GET,PUT'")].into_iter()).unwrap();
        config.disabled.insert("other".to_owned());
        let shown = config.apply(registry.gather());
        let mut lines = Vec::new();
        for family in &shown {
            for metric in family.get_metric() {
                let count = metric.get_counter().get_value()
                    + metric.get_histogram().get_sample_count() as f64;
                lines.push(format!("{} {} {count}", family.name(), metric.get_label()[0].value()));
            }
        }
        assert_eq!(
            lines,
            ["requests GET 1", "requests unexpected 2", "sizes GET 1", "sizes unexpected 2"]
        );
        assert!(config.allow([("requests", "GET")].into_iter()).is_err());
    }
}
