//! `apiserver_flowcontrol_*` and `apiserver_current_inqueue_requests`, read from the flow controller when `/metrics` is scraped.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use flowcontrol::FlowController;
use flowcontrol::metrics::Histogram;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram as HistogramProto, LabelPair, Metric, MetricFamily,
    MetricType,
};

pub(super) struct FlowControlMetrics {
    controller: Arc<FlowController>,
    descs: Vec<Desc>,
}

const PREFIX: &str = "apiserver_flowcontrol_";
const LEVEL: &[&str] = &["priority_level"];
const SCHEMA: &[&str] = &["priority_level", "flow_schema"];

/// Name without prefix, help, labels.
const FAMILIES: &[(&str, &str, &[&str])] = &[
    ("current_executing_requests", "Requests that hold seats.", SCHEMA),
    ("current_executing_seats", "Seats that are taken.", SCHEMA),
    ("current_inqueue_requests", "Requests that wait for seats.", SCHEMA),
    ("current_inqueue_seats", "Seats that are waited for.", SCHEMA),
    ("current_limit_seats", "Seats of the level at present, by lending and borrowing.", LEVEL),
    ("current_r", "Virtual time of the level.", LEVEL),
    ("demand_seats", "Demanded seats by the level's limit, at each nanosecond.", LEVEL),
    ("demand_seats_average", "Mean of the demanded seats over the last period.", LEVEL),
    ("demand_seats_high_watermark", "Most seats demanded in the last period.", LEVEL),
    ("demand_seats_smoothed", "Demanded seats: rises at once, falls slowly.", LEVEL),
    ("demand_seats_stdev", "Deviation of the demanded seats over the last period.", LEVEL),
    ("dispatch_r", "Virtual time of the level at the latest dispatch.", LEVEL),
    ("dispatched_requests_total", "Requests that got seats.", SCHEMA),
    ("latest_s", "Virtual start of the request that was dispatched last.", LEVEL),
    ("lower_limit_seats", "Seats that the level keeps when it lends all it may.", LEVEL),
    (
        "next_discounted_s_bounds",
        "Least and greatest virtual start over queues, less work in progress.",
        &["priority_level", "bound"],
    ),
    (
        "next_s_bounds",
        "Least and greatest virtual start over queues.",
        &["priority_level", "bound"],
    ),
    ("nominal_limit_seats", "Seats of the level by its shares.", LEVEL),
    (
        "priority_level_request_utilization",
        "Requests by the level's limit, at each nanosecond.",
        &["priority_level", "phase"],
    ),
    (
        "priority_level_seat_utilization",
        "Seats by the level's limit, at each nanosecond.",
        &["priority_level", "phase"],
    ),
    (
        "read_vs_write_current_requests",
        "Reads and writes by the limit of all levels, at each nanosecond.",
        &["phase", "request_kind"],
    ),
    (
        "rejected_requests_total",
        "Requests that got no seats.",
        &["priority_level", "flow_schema", "reason"],
    ),
    (
        "request_dispatch_no_accommodation_total",
        "Times that the next request did not fit in the free seats.",
        SCHEMA,
    ),
    (
        "request_execution_seconds",
        "Time for which requests held their seats.",
        &["priority_level", "flow_schema", "type"],
    ),
    (
        "request_queue_length_after_enqueue",
        "Length of a queue as an arriving request found it, itself counted.",
        SCHEMA,
    ),
    (
        "request_wait_duration_seconds",
        "Time for which requests waited.",
        &["priority_level", "flow_schema", "execute"],
    ),
    ("seat_fair_frac", "Part of their target that levels get which may borrow.", &[]),
    ("target_seats", "Seats that the level should have by its demand.", LEVEL),
    ("upper_limit_seats", "Seats of the level when it borrows all it may.", LEVEL),
    ("watch_count_samples", "Watches that writes are sent to.", SCHEMA),
    ("work_estimated_seats", "Seats that requests were estimated to need.", SCHEMA),
];

/// The one family without the prefix.
const INQUEUE: (&str, &str, &[&str]) = (
    "apiserver_current_inqueue_requests",
    "Most requests that waited for seats at once in the last second.",
    &["request_kind"],
);

fn full_name(name: &str) -> String {
    if name == INQUEUE.0 { name.to_owned() } else { format!("{PREFIX}{name}") }
}

fn families() -> impl Iterator<Item = &'static (&'static str, &'static str, &'static [&'static str])>
{
    FAMILIES.iter().chain([&INQUEUE])
}

impl FlowControlMetrics {
    pub(super) fn new(controller: Arc<FlowController>) -> Self {
        let desc = |(name, help, labels): &(&str, &str, &[&str])| {
            let labels = labels.iter().map(|&label| label.to_owned()).collect();
            Desc::new(full_name(name), (*help).to_owned(), labels, HashMap::new())
                .expect("valid names")
        };
        Self { controller, descs: families().map(desc).collect() }
    }
}

impl Collector for FlowControlMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let snapshot = self.controller.metrics();
        let mut families = Families::default();
        for level in &snapshot.levels {
            for (name, bound, value) in &level.gauges {
                families.gauge(name, &[&level.name, bound], *value);
            }
            for (name, phase, histogram) in &level.histograms {
                families.histogram(name, &[&level.name, phase], histogram);
            }
        }
        for schema in &snapshot.schemas {
            for (name, label, count) in &schema.counters {
                families.counter(name, &[&schema.level, &schema.name, label], *count as f64);
            }
            for (name, value) in &schema.gauges {
                families.gauge(name, &[&schema.level, &schema.name], *value as f64);
            }
            for (name, label, histogram) in &schema.histograms {
                families.histogram(name, &[&schema.level, &schema.name, label], histogram);
            }
        }
        for (phase, kind, histogram) in &snapshot.read_vs_write {
            families.histogram("read_vs_write_current_requests", &[phase, kind], histogram);
        }
        families.gauge("seat_fair_frac", &[], snapshot.seat_fair_frac);
        for (kind, peak) in snapshot.waiting_peaks {
            families.gauge(INQUEUE.0, &[kind], f64::from(peak));
        }
        families.finish()
    }
}

#[derive(Default)]
struct Families(BTreeMap<&'static str, (MetricType, Vec<Metric>)>);

impl Families {
    /// `values` in the order of the family's labels; it may be longer by an empty one.
    fn add(
        &mut self,
        name: &str,
        values: &[&str],
        field_type: MetricType,
        fill: impl FnOnce(&mut Metric),
    ) {
        let Some((name, _, labels)) = families().find(|(known, _, _)| *known == name) else {
            return;
        };
        let mut pairs: Vec<LabelPair> = labels
            .iter()
            .zip(values)
            .map(|(label, value)| {
                let mut pair = LabelPair::default();
                pair.set_name((*label).to_owned());
                pair.set_value((*value).to_owned());
                pair
            })
            .collect();
        pairs.sort_by(|one, other| one.name().cmp(other.name()));
        let mut metric = Metric::default();
        metric.set_label(pairs);
        fill(&mut metric);
        self.0.entry(name).or_insert_with(|| (field_type, Vec::new())).1.push(metric);
    }

    fn gauge(&mut self, name: &str, values: &[&str], value: f64) {
        self.add(name, values, MetricType::GAUGE, |metric| {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        });
    }

    fn counter(&mut self, name: &str, values: &[&str], value: f64) {
        self.add(name, values, MetricType::COUNTER, |metric| {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        });
    }

    fn histogram(&mut self, name: &str, values: &[&str], histogram: &Histogram) {
        self.add(name, values, MetricType::HISTOGRAM, |metric| {
            let mut total = 0;
            let mut buckets = Vec::new();
            for (&bound, count) in histogram.bounds.iter().zip(&histogram.counts) {
                total += count;
                let mut bucket = Bucket::default();
                bucket.set_upper_bound(bound);
                bucket.set_cumulative_count(total);
                buckets.push(bucket);
            }
            let mut proto = HistogramProto::default();
            proto.set_bucket(buckets);
            proto.set_sample_count(histogram.counts.iter().sum());
            proto.set_sample_sum(histogram.sum);
            metric.set_histogram(proto);
        });
    }

    fn finish(self) -> Vec<MetricFamily> {
        let family = |(name, (field_type, metrics)): (&str, (MetricType, Vec<Metric>))| {
            let help = families().find(|(known, _, _)| *known == name);
            let mut family = MetricFamily::default();
            family.set_name(full_name(name));
            family.set_help(help.map(|(_, help, _)| *help).unwrap_or_default().to_owned());
            family.set_field_type(field_type);
            family.set_metric(metrics);
            family
        };
        self.0.into_iter().map(family).collect()
    }
}

#[cfg(test)]
mod tests {
    use flowcontrol::{ObjectCounts, ObjectStatistics, Options};
    use prometheus::{Encoder as _, Registry, TextEncoder};

    use super::*;

    struct NoObjects;

    impl ObjectCounts for NoObjects {
        fn statistics(&self, _: &meta::RequestInfo) -> Option<ObjectStatistics> {
            None
        }
    }

    #[tokio::test]
    async fn series_have_kube_apiservers_names_and_labels() {
        let options = Options { seats: 10, lists_by_size: true, counts: Arc::new(NoObjects) };
        let controller = Arc::new(FlowController::new(options));
        let info = meta::RequestInfo { verb: "get".into(), ..meta::RequestInfo::default() };
        let user = meta::User::anonymous();
        let request = flowcontrol::Request { info: &info, user: &user, query: "" };
        let schema = controller.classify(&request);
        let soon = tokio::time::Instant::now();
        let seat = controller.seat(&schema, &request, soon).await.expect("a free seat");
        let registry = Registry::new();
        registry.register(Box::new(FlowControlMetrics::new(controller))).expect("valid names");
        let mut text = Vec::new();
        TextEncoder::new().encode(&registry.gather(), &mut text).expect("encodes");
        let text = String::from_utf8(text).expect("text");
        drop(seat);
        for expected in [
            "apiserver_flowcontrol_current_executing_requests{flow_schema=\"catch-all\",priority_level=\"catch-all\"} 1",
            "apiserver_flowcontrol_dispatched_requests_total{flow_schema=\"catch-all\",priority_level=\"catch-all\"} 1",
            "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"catch-all\"} 10",
            "apiserver_flowcontrol_request_wait_duration_seconds_count{execute=\"true\",flow_schema=\"catch-all\",priority_level=\"catch-all\"} 1",
            "apiserver_flowcontrol_read_vs_write_current_requests_bucket{phase=\"executing\",request_kind=\"readOnly\",le=\"0.1\"}",
            "apiserver_flowcontrol_seat_fair_frac ",
            "apiserver_current_inqueue_requests{request_kind=\"readOnly\"} 0",
            "apiserver_current_inqueue_requests{request_kind=\"mutating\"} 0",
        ] {
            assert!(text.contains(expected), "{expected} is missing in:\n{text}");
        }
    }
}
