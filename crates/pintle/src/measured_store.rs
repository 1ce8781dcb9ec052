//! Counts and times what is asked of the store, under kube-apiserver's names for etcd.

use std::{collections::HashMap, sync::Arc, time::Instant};

use builtin::Definitions;
use meta::{GroupResource, Str};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};
use store::{
    Backend, BoxFuture, Expect, KeyValue, Range, RangeResult, StoreError, WatchStream, Write,
};

/// The metrics of all stores of a server.
#[derive(Clone)]
pub(crate) struct StoreMetrics {
    requests: IntCounterVec,
    errors: IntCounterVec,
    durations: HistogramVec,
    resources: Arc<Resources>,
}

/// Which resource a key is of.
struct Resources {
    /// `/registry`
    prefix: Str,
    /// By one or two segments of the key.
    built_in: HashMap<Str, GroupResource>,
}

const LABELS: [&str; 3] = ["group", "operation", "resource"];

impl StoreMetrics {
    pub(crate) fn register(registry: &Registry, prefix: &str, definitions: &Definitions) -> Self {
        let counter = |name: &str, help: &str| {
            let counter = IntCounterVec::new(Opts::new(name, help), &LABELS).expect("valid names");
            registry.register(Box::new(counter.clone())).expect("registered once");
            counter
        };
        let requests = counter("etcd_requests_total", "Requests to the store.");
        let errors = counter("etcd_request_errors_total", "Requests to the store that failed.");
        let durations = HistogramOpts::new(
            "etcd_request_duration_seconds",
            "Time that the store takes, etcd or embedded.",
        );
        let durations = HistogramVec::new(durations.buckets(BUCKETS.to_vec()), &LABELS);
        let durations = durations.expect("valid names");
        registry.register(Box::new(durations.clone())).expect("registered once");
        Self {
            requests,
            errors,
            durations,
            resources: Arc::new(Resources::new(prefix, definitions)),
        }
    }

    /// What `DELETE /metrics` does.
    pub(crate) fn reset(&self) {
        self.requests.reset();
        self.errors.reset();
        self.durations.reset();
    }

    pub(crate) fn measure(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Measured { inner, metrics: self.clone() })
    }

    fn observe<T>(
        &self,
        operation: &str,
        key: &str,
        began: Instant,
        result: &Result<T, StoreError>,
    ) {
        let (group, resource) = self.resources.of(key);
        let labels = [group, operation, resource];
        self.requests.with_label_values(&labels).inc();
        self.durations.with_label_values(&labels).observe(began.elapsed().as_secs_f64());
        // A comparison that fails is an answer.
        if !matches!(result, Ok(_) | Err(StoreError::Conflict { .. })) {
            self.errors.with_label_values(&labels).inc();
        }
    }
}

/// As upstream.
const BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];

impl Resources {
    fn new(prefix: &str, definitions: &Definitions) -> Self {
        let stored = definitions.resources.iter().filter_map(|facts| {
            let mut resource = facts.group_version_resource().group_resource();
            // Both groups of events are stored as those of the core group.
            if resource.resource == "events" {
                resource.group = Str::default();
            }
            Some((facts.storage.as_ref()?.prefix.clone(), resource))
        });
        Self { prefix: prefix.into(), built_in: stored.collect() }
    }

    /// Group and resource.
    fn of<'a>(&'a self, key: &'a str) -> (&'a str, &'a str) {
        let path = key.strip_prefix(&*self.prefix).map(|path| path.trim_start_matches('/'));
        let Some((first, rest)) = path.and_then(|path| path.split_once('/')) else {
            return ("", "other");
        };
        let second = rest.split_once('/').map_or(rest, |(second, _)| second);
        let both = format!("{first}/{second}");
        match self.built_in.get(both.as_str()).or_else(|| self.built_in.get(first)) {
            Some(resource) => (&resource.group, &resource.resource),
            // Custom resources: their groups always contain a dot.
            None if first.contains('.') => (first, second),
            None => ("", "other"),
        }
    }
}

struct Measured {
    inner: Arc<dyn Backend>,
    metrics: StoreMetrics,
}

impl Backend for Measured {
    fn oldest_revision(&self) -> u64 {
        self.inner.oldest_revision()
    }

    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<KeyValue>, StoreError>> {
        let (key, began) = (key.to_owned(), Instant::now());
        let found = self.inner.get(&key);
        Box::pin(async move {
            let found = found.await;
            self.metrics.observe("get", &key, began, &found);
            found
        })
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult, StoreError>> {
        let (key, began) = (range.prefix.clone(), Instant::now());
        Box::pin(async move {
            let found = self.inner.range(range).await;
            self.metrics.observe("list", &key, began, &found);
            found
        })
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<u64, StoreError>> {
        let operation = match (&write.value, write.expect) {
            (None, _) => "delete",
            (Some(_), Expect::Absent) => "create",
            (Some(_), _) => "update",
        };
        let (key, began) = (write.key.clone(), Instant::now());
        Box::pin(async move {
            let written = self.inner.write(write).await;
            self.metrics.observe(operation, &key, began, &written);
            written
        })
    }

    fn revision(&self) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.inner.revision()
    }

    fn compact(&self, revision: u64) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.compact(revision)
    }

    fn watch(&self, prefix: &str, after: u64) -> BoxFuture<'_, Result<WatchStream, StoreError>> {
        self.inner.watch(prefix, after)
    }

    fn is_stale(&self, key: &str) -> BoxFuture<'_, Result<bool, StoreError>> {
        self.inner.is_stale(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_belong_to_built_in_resources_or_to_none() {
        let resources = Resources::new("/registry", &Definitions::load());
        let cases = [
            ("/registry/pods/default/web", ("", "pods")),
            ("/registry/services/specs/default/web", ("", "services")),
            ("/registry/deployments/default/web", ("apps", "deployments")),
            ("/registry/events/default/e", ("", "events")),
            ("/registry/example.com/widgets/default/w", ("example.com", "widgets")),
            ("/registry/masterleases/192.0.2.1", ("", "other")),
            ("/elsewhere/pods/default/web", ("", "other")),
        ];
        for (key, expected) in cases {
            assert_eq!(resources.of(key), expected, "{key}");
        }
    }
}
