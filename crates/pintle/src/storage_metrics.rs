//! Storage and watch metrics by resource, read from the watch caches at each scrape.

mod encodings;
mod reads;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use background::Tasks;
use endpoints::Resources;
use prometheus::{
    GaugeVec, Opts, Registry,
    core::{Collector, Desc},
    proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType},
};
use registry::{Kind, WATCH_EVENT_SIZES};

use crate::{options::Options, stores::Stores};

/// Registers the collector. The kinds are looked up at each scrape, since custom kinds change.
pub(crate) fn register(
    registry: &Registry,
    options: &Options,
    kinds: &[Arc<Kind>],
    extensions: &Arc<Resources>,
) {
    let is_exposed = |family: &&Family| options.count_metric || !COUNTS.contains(&family.name);
    let families: Vec<&Family> = FAMILIES.iter().filter(is_exposed).collect();
    let mut descs: Vec<Desc> =
        families.iter().map(|family| desc(family.name, family.help, family.labels)).collect();
    descs.extend(reads::FAMILIES.iter().map(|family| {
        let labels: Vec<&str> = family.labels.iter().chain(family.split).copied().collect();
        desc(family.name, family.help, &labels)
    }));
    let extensions = extensions.clone();
    let collector = ResourceCollector { kinds: kinds.to_vec(), extensions, families, descs };
    registry.register(Box::new(collector)).expect("registered once");
    registry.register(Box::new(encodings::EncodingCollector::new())).expect("registered once");
}

/// The metrics that `--etcd-count-metric-poll-period=0` disables.
const COUNTS: [&str; 2] = ["apiserver_resource_objects", "apiserver_storage_objects"];

/// Measures the size of the stores periodically; `None` for never.
pub(crate) fn measure(
    registry: &Registry,
    every: Option<Duration>,
    stores: &Stores,
    tasks: &Tasks,
) {
    let Some(every) = every else { return };
    let help = "Bytes that the storage takes on disk.";
    let sizes =
        GaugeVec::new(Opts::new("apiserver_storage_size_bytes", help), &["storage_cluster_id"])
            .expect("valid names");
    registry.register(Box::new(sizes.clone())).expect("registered once");
    let stores = stores.clone();
    tasks.restarting("storage-size", move || {
        let (stores, sizes) = (stores.clone(), sizes.clone());
        async move {
            loop {
                for (id, bytes) in stores.sizes().await {
                    sizes.with_label_values(&[&id]).set(bytes as f64);
                }
                tokio::time::sleep(every).await;
            }
        }
    });
}

/// A metric that every resource has.
struct Family {
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    value: fn(&Kind) -> Option<Value>,
}

enum Value {
    Gauge(u64),
    Counter(u64),
    /// Cumulative counts by [`WATCH_EVENT_SIZES`], and the sum.
    Sizes([u64; WATCH_EVENT_SIZES.len() + 1], u64),
    /// Bounds, cumulative counts by bound and of all, and the sum.
    Seconds(&'static [f64], Vec<u64>, f64),
}

const BY_RESOURCE: &[&str] = &["group", "resource"];
const BY_VERSION: &[&str] = &["group", "resource", "version"];

const FAMILIES: &[Family] = &[
    Family {
        name: "apiserver_resource_objects",
        help: "Objects in the store.",
        labels: BY_RESOURCE,
        value: |kind| Some(Value::Gauge(cache(kind)?.snapshot().len() as u64)),
    },
    Family {
        name: "apiserver_storage_objects",
        help: "Objects in the store, under the older name of the metric.",
        labels: &["resource"],
        value: |kind| Some(Value::Gauge(cache(kind)?.snapshot().len() as u64)),
    },
    Family {
        name: "apiserver_watch_cache_events_received_total",
        help: "Events that came from the store.",
        labels: BY_RESOURCE,
        value: |kind| Some(Value::Counter(cache(kind)?.events_received())),
    },
    Family {
        name: "apiserver_watch_cache_events_dispatched_total",
        help: "Events that were handed to watchers.",
        labels: BY_RESOURCE,
        value: |kind| Some(Value::Counter(cache(kind)?.events_received())),
    },
    Family {
        name: "pintle_watch_cache_object_bytes",
        help: "Bytes of the objects that the cache holds, as they are served.",
        labels: BY_RESOURCE,
        value: |kind| Some(Value::Gauge(cache(kind)?.bytes().0 as u64)),
    },
    Family {
        name: "pintle_watch_cache_event_bytes",
        help: "Bytes that events hold beyond the objects, 64 MiB at most.",
        labels: BY_RESOURCE,
        value: |kind| Some(Value::Gauge(cache(kind)?.bytes().1 as u64)),
    },
    Family {
        name: "pintle_unreadable_objects",
        help: "Stored objects that cannot be read.",
        labels: BY_RESOURCE,
        value: |kind| Some(Value::Gauge(cache(kind)?.snapshot().broken_len() as u64)),
    },
    Family {
        name: "apiserver_watch_cache_resource_version",
        help: "Revision that the cache has reached.",
        labels: BY_RESOURCE,
        value: |kind| Some(Value::Gauge(cache(kind)?.revision())),
    },
    Family {
        name: "apiserver_watch_cache_initializations_total",
        help: "How often the cache was filled from the store.",
        labels: BY_RESOURCE,
        value: |kind| Some(Value::Counter(cache(kind)?.initializations())),
    },
    Family {
        name: "apiserver_storage_events_received_total",
        help: "Events that came from the store.",
        labels: BY_RESOURCE,
        value: |kind| Some(Value::Counter(cache(kind)?.events_received())),
    },
    Family {
        name: "apiserver_resource_size_estimate_bytes",
        help: "Bytes of the objects in the store, as they are served.",
        labels: BY_RESOURCE,
        value: |kind| Some(Value::Gauge(cache(kind)?.bytes().0 as u64)),
    },
    Family {
        name: "apiserver_requested_deprecated_apis",
        help: "Deprecated versions that were requested, with the release that removes them.",
        labels: &["group", "removed_release", "resource", "subresource", "version"],
        value: |kind| kind.deprecated_requested().then_some(Value::Gauge(1)),
    },
    Family {
        name: "watch_cache_capacity",
        help: "Events that the cache can keep.",
        labels: BY_RESOURCE,
        value: |kind| Some(Value::Gauge(cache(kind)?.capacity() as u64)),
    },
    Family {
        name: "apiserver_terminated_watchers_total",
        help: "Watchers that were ended because they did not keep up.",
        labels: BY_RESOURCE,
        value: |kind| Some(Value::Counter(cache(kind)?.watchers_slow())),
    },
    Family {
        name: "apiserver_watch_events_total",
        help: "Events that watchers were sent.",
        labels: BY_VERSION,
        value: |kind| {
            let all = *kind.watch_metrics.cumulative().last()?;
            (all > 0).then_some(Value::Counter(all))
        },
    },
    Family {
        name: "apiserver_watch_events_sizes",
        help: "Bytes of the events that watchers were sent.",
        labels: BY_VERSION,
        value: |kind| {
            let counts = kind.watch_metrics.cumulative();
            (*counts.last()? > 0).then(|| Value::Sizes(counts, kind.watch_metrics.bytes()))
        },
    },
];

fn cache(kind: &Kind) -> Option<&store::Cache> {
    Some(&kind.storage.as_ref()?.cache)
}

struct ResourceCollector {
    kinds: Vec<Arc<Kind>>,
    extensions: Arc<Resources>,
    families: Vec<&'static Family>,
    descs: Vec<Desc>,
}

fn desc(name: &str, help: &str, labels: &[&str]) -> Desc {
    let labels = labels.iter().map(|&label| label.to_owned()).collect();
    Desc::new(name.to_owned(), help.to_owned(), labels, HashMap::new()).expect("valid names")
}

fn family(name: &str, help: &str, ty: MetricType, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(ty);
    family.set_metric(metrics);
    family
}

impl Family {
    fn collect(&self, kinds: &[Arc<Kind>]) -> MetricFamily {
        let mut metrics: Vec<Metric> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        let mut field_type = MetricType::GAUGE;
        for kind in kinds {
            let labels = labels(self.labels, kind);
            // Versions of a resource are counted once, unless the metric has a version label.
            if !seen.insert(labels.clone()) {
                continue;
            }
            let Some(value) = (self.value)(kind) else { continue };
            let (metric, ty) = metric(labels, &value);
            field_type = ty;
            metrics.push(metric);
        }
        family(self.name, self.help, field_type, metrics)
    }
}

impl Collector for ResourceCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let custom = self.extensions.kinds();
        let custom = custom.iter().filter(|kind| kind.is_custom()).cloned();
        let kinds: Vec<_> = self.kinds.iter().cloned().chain(custom).collect();
        let families = self.families.iter().map(|family| family.collect(&kinds));
        let families = families.chain(reads::FAMILIES.iter().map(|family| family.collect(&kinds)));
        families.filter(|family| !family.get_metric().is_empty()).collect()
    }
}

fn labels(names: &'static [&'static str], kind: &Kind) -> Vec<(&'static str, String)> {
    let (gvk, plural) = (kind.gvk(), kind.facts.plural.as_str());
    let alone = !names.contains(&"group") && !gvk.group.is_empty();
    let value = |label: &str| match label {
        "group" => gvk.group.to_string(),
        "version" => gvk.version.to_string(),
        // Versions are deprecated as a whole.
        "subresource" => String::new(),
        "removed_release" => kind.removed_release().unwrap_or_default().to_owned(),
        // Without a group label, the resource label includes the group.
        _ if alone => format!("{plural}.{}", gvk.group),
        _ => plural.to_owned(),
    };
    names.iter().map(|&label| (label, value(label))).collect()
}

fn metric(labels: Vec<(&'static str, String)>, value: &Value) -> (Metric, MetricType) {
    let pair = |(name, value): (&str, String)| {
        let mut pair = LabelPair::default();
        pair.set_name(name.to_owned());
        pair.set_value(value);
        pair
    };
    let mut metric = Metric::default();
    metric.set_label(labels.into_iter().map(pair).collect());
    let ty = match value {
        Value::Gauge(number) => {
            let mut gauge = Gauge::default();
            gauge.set_value(*number as f64);
            metric.set_gauge(gauge);
            MetricType::GAUGE
        }
        Value::Counter(number) => {
            let mut counter = Counter::default();
            counter.set_value(*number as f64);
            metric.set_counter(counter);
            MetricType::COUNTER
        }
        Value::Sizes(counts, sum) => {
            let bucket = |(&bound, &count): (&usize, &u64)| {
                let mut bucket = Bucket::default();
                bucket.set_upper_bound(bound as f64);
                bucket.set_cumulative_count(count);
                bucket
            };
            let mut histogram = Histogram::default();
            histogram.set_bucket(WATCH_EVENT_SIZES.iter().zip(counts).map(bucket).collect());
            histogram.set_sample_count(counts[WATCH_EVENT_SIZES.len()]);
            histogram.set_sample_sum(*sum as f64);
            metric.set_histogram(histogram);
            MetricType::HISTOGRAM
        }
        Value::Seconds(bounds, counts, sum) => {
            let bucket = |(&bound, &count): (&f64, &u64)| {
                let mut bucket = Bucket::default();
                bucket.set_upper_bound(bound);
                bucket.set_cumulative_count(count);
                bucket
            };
            let mut histogram = Histogram::default();
            histogram.set_bucket(bounds.iter().zip(counts).map(bucket).collect());
            histogram.set_sample_count(counts.last().copied().unwrap_or_default());
            histogram.set_sample_sum(*sum);
            metric.set_histogram(histogram);
            MetricType::HISTOGRAM
        }
    };
    (metric, ty)
}
