//! Metrics of the encoding cache, which all resources share.

use prometheus::{
    core::{Collector, Desc},
    proto::MetricFamily,
};
use store::EncodingCache;

use super::{Value, desc, family, metric};

type Family = (&'static str, &'static str, fn(&EncodingCache) -> Value);

/// Names, helps and values.
const FAMILIES: &[Family] = &[
    (
        "pintle_encoding_cache_bytes",
        "Bytes of encodings that are kept beside the JSON of objects, --encoding-cache-size at most.",
        |cache| Value::Gauge(cache.bytes() as u64),
    ),
    (
        "pintle_encoding_cache_evictions_total",
        "Encodings that were dropped so that others could be kept.",
        |cache| Value::Counter(cache.evicted()),
    ),
    (
        "pintle_encoding_cache_full_total",
        "Encodings that were made while the cache had no place for them; most of them were not kept.",
        |cache| Value::Counter(cache.refused()),
    ),
    (
        "pintle_webhook_conversion_bytes",
        "Bytes of objects that conversion webhooks made, which are kept whatever the cache's size.",
        |cache| Value::Gauge(cache.pinned_bytes() as u64),
    ),
];

pub(super) struct EncodingCollector(Vec<Desc>);

impl EncodingCollector {
    pub(super) fn new() -> Self {
        Self(FAMILIES.iter().map(|(name, help, _)| desc(name, help, &[])).collect())
    }
}

impl Collector for EncodingCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.0.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let cache = EncodingCache::process();
        let collect = |(name, help, value): &Family| {
            let (metric, ty) = metric(Vec::new(), &value(cache));
            family(name, help, ty, vec![metric])
        };
        FAMILIES.iter().map(collect).collect()
    }
}
