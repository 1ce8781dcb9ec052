//! `apiserver_envelope_encryption_*` and what kube-apiserver counts beside them. One set for the process.

use std::{
    collections::VecDeque,
    sync::LazyLock,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGaugeVec, Opts, Registry, exponential_buckets,
};

use crate::envelope::key_id_hash;

static FAMILIES: LazyLock<Families> = LazyLock::new(Families::new);

struct Families {
    operations: HistogramVec,
    key_ids: IntCounterVec,
    key_id_used: GaugeVec,
    key_id_status: GaugeVec,
    invalid_key_ids: IntCounterVec,
    seeds: IntGaugeVec,
    /// Compat: of KMS v1, so that it stays 0.
    fill_percent: Gauge,
    key_generations: Histogram,
    key_generation_failures: IntCounter,
    cache_misses: IntCounter,
    /// The labels of keys that were used, the least recently seen first.
    known: Mutex<VecDeque<[String; 4]>>,
}

/// Compat: kube-apiserver keeps the series of so many keys.
const KEYS_MAX: usize = 100;

const KEY_LABELS: [&str; 4] =
    ["apiserver_id_hash", "key_id_hash", "provider_name", "transformation_type"];

fn name(metric: &str) -> String {
    format!("apiserver_envelope_encryption_{metric}")
}

impl Families {
    fn new() -> Self {
        let operations = HistogramOpts::new(
            name("kms_operations_latency_seconds"),
            "Time of a call to a KMS plugin, by its gRPC code.",
        );
        // As upstream: 0.1 ms to 52 s.
        let operations =
            operations.buckets(exponential_buckets(0.0001, 2.0, 20).expect("valid buckets"));
        let key_generations = HistogramOpts::new(
            "apiserver_storage_data_key_generation_duration_seconds",
            "Time to make a data encryption key.",
        );
        let key_generations =
            key_generations.buckets(exponential_buckets(5e-6, 2.0, 14).expect("valid buckets"));
        let counter = |name: &str, help: &str| IntCounter::new(name, help).expect("valid names");
        let gauges = |metric: &str, help: &str, labels: &[&str]| {
            GaugeVec::new(Opts::new(name(metric), help), labels).expect("valid names")
        };
        let counters = |metric: &str, help: &str, labels: &[&str]| {
            IntCounterVec::new(Opts::new(name(metric), help), labels).expect("valid names")
        };
        let seeds = Opts::new(
            name("dek_source_cache_size"),
            "Seeds that are kept decrypted; a restart asks the plugin for about as many.",
        );
        let fill_percent =
            Gauge::new(name("dek_cache_fill_percent"), "Of KMS v1, which is not supported: 0.");
        Self {
            operations: HistogramVec::new(
                operations,
                &["grpc_status_code", "method_name", "provider_name"],
            )
            .expect("valid names"),
            key_ids: counters("key_id_hash_total", "Uses of a key.", &KEY_LABELS),
            key_id_used: gauges(
                "key_id_hash_last_timestamp_seconds",
                "When a key was used last.",
                &KEY_LABELS,
            ),
            key_id_status: gauges(
                "key_id_hash_status_last_timestamp_seconds",
                "When a plugin named its key last.",
                &KEY_LABELS[..3],
            ),
            invalid_key_ids: counters(
                "invalid_key_id_from_status_total",
                "Key IDs of plugins that are not valid.",
                &["error", "provider_name"],
            ),
            seeds: IntGaugeVec::new(seeds, &["provider_name"]).expect("valid names"),
            fill_percent: fill_percent.expect("valid names"),
            key_generations: Histogram::with_opts(key_generations).expect("valid names"),
            key_generation_failures: counter(
                "apiserver_storage_data_key_generation_failures_total",
                "Data encryption keys that could not be made.",
            ),
            cache_misses: counter(
                "apiserver_storage_envelope_transformation_cache_misses_total",
                "Reads that had to ask a KMS plugin for a key.",
            ),
            known: Mutex::default(),
        }
    }

    /// Keeps the labels of the keys that were seen last. Most values have the key of the one before.
    fn remember(&self, labels: [&str; 4]) {
        let mut known = self.known.lock();
        let at = known.iter().rposition(|known| known.each_ref().map(String::as_str) == labels);
        match at {
            Some(last) if last + 1 == known.len() => return,
            Some(at) => {
                let again = known.remove(at).expect("found above");
                known.push_back(again);
            }
            None => known.push_back(labels.map(str::to_owned)),
        }
        while known.len() > KEYS_MAX
            && let Some(gone) = known.pop_front()
        {
            let gone = gone.each_ref().map(String::as_str);
            drop(self.key_ids.remove_label_values(&gone));
            drop(self.key_id_used.remove_label_values(&gone));
        }
    }
}

/// Makes the metrics of all providers part of a registry.
pub fn register_metrics(registry: &Registry) -> Result<(), String> {
    let families = &*FAMILIES;
    let register = |metric| registry.register(metric).map_err(|error| error.to_string());
    register(Box::new(families.operations.clone()))?;
    register(Box::new(families.key_ids.clone()))?;
    register(Box::new(families.key_id_used.clone()))?;
    register(Box::new(families.key_id_status.clone()))?;
    register(Box::new(families.invalid_key_ids.clone()))?;
    register(Box::new(families.seeds.clone()))?;
    register(Box::new(families.fill_percent.clone()))?;
    register(Box::new(families.key_generations.clone()))?;
    register(Box::new(families.key_generation_failures.clone()))?;
    register(Box::new(families.cache_misses.clone()))
}

/// The direction of a transformation.
#[derive(Clone, Copy)]
pub(crate) enum Transformation {
    FromStorage,
    ToStorage,
}

/// A value was read or written with this key.
pub(crate) fn key_used(transformation: Transformation, provider: &str, key_id: &str) {
    let transformation = match transformation {
        Transformation::FromStorage => "from_storage",
        Transformation::ToStorage => "to_storage",
    };
    let hash = key_id_hash(key_id);
    let labels = [SERVER, &hash, provider, transformation];
    FAMILIES.key_ids.with_label_values(&labels).inc();
    FAMILIES.key_id_used.with_label_values(&labels).set(now());
    FAMILIES.remember(labels);
}

/// Compat: the hash of the server's identity; kube-apiserver without an identity leaves it empty.
const SERVER: &str = "";

pub(crate) fn key_of_status(provider: &str, key_id: &str) {
    let labels = [SERVER, &key_id_hash(key_id), provider];
    FAMILIES.key_id_status.with_label_values(&labels).set(now());
}

/// Compat: kube-apiserver's codes.
pub(crate) fn invalid_key_id(provider: &str, key_id: &str) {
    let code = if key_id.is_empty() { "empty" } else { "too_long" };
    FAMILIES.invalid_key_ids.with_label_values(&[code, provider]).inc();
}

pub(crate) fn seeds_kept(provider: &str, seeds: usize) {
    FAMILIES.seeds.with_label_values(&[provider]).set(i64::try_from(seeds).unwrap_or(i64::MAX));
}

pub(crate) fn key_generated(took: Result<Duration, ()>) {
    match took {
        Ok(took) => FAMILIES.key_generations.observe(took.as_secs_f64()),
        Err(()) => FAMILIES.key_generation_failures.inc(),
    }
}

pub(crate) fn cache_missed() {
    FAMILIES.cache_misses.inc();
}

pub(crate) fn called(provider: &str, method: &str, code: &str, took: Duration) {
    let labels = [code, method, provider];
    FAMILIES.operations.with_label_values(&labels).observe(took.as_secs_f64());
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_of_keys_are_bounded() {
        for at in 0..KEYS_MAX + 10 {
            key_used(Transformation::ToStorage, "bounded", &format!("key-{at}"));
        }
        key_used(Transformation::FromStorage, "bounded", "key-0");
        assert_eq!(FAMILIES.known.lock().len(), KEYS_MAX);
        let count = |at: usize| {
            let hash = key_id_hash(&format!("key-{at}"));
            let labels = [SERVER, &hash, "bounded", "to_storage"];
            FAMILIES.key_ids.with_label_values(&labels).get()
        };
        assert_eq!((count(KEYS_MAX + 9), count(0)), (1, 0));
    }
}
