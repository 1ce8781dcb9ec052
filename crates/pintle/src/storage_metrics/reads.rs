//! Metrics of reads: lists from caches and from the store, consistent reads, initial events of watches.
//! Each family has one value per resource and split.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use prometheus::proto::{MetricFamily, MetricType};
use registry::Kind;
use store::{DurationHistogram, ListCounters, ReadMetrics};

use super::{BY_RESOURCE, BY_VERSION, Value, family, labels, metric};

pub(super) struct SplitFamily {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    /// Of the resource.
    pub(super) labels: &'static [&'static str],
    /// Those whose values `samples` has.
    pub(super) split: &'static [&'static str],
    samples: fn(&Kind) -> Vec<Sample>,
}

/// A value and its labels beside those of the resource.
type Sample = (Vec<String>, Value);

impl SplitFamily {
    pub(super) fn collect(&self, kinds: &[Arc<Kind>]) -> MetricFamily {
        let mut metrics = Vec::new();
        let mut seen = std::collections::HashSet::new();
        let mut field_type = MetricType::COUNTER;
        for kind in kinds {
            let labels = labels(self.labels, kind);
            // Versions of a resource are counted once, unless the metric has a version label.
            if !seen.insert(labels.clone()) {
                continue;
            }
            for (values, value) in (self.samples)(kind) {
                let mut labels = labels.clone();
                labels.extend(self.split.iter().copied().zip(values));
                // The text format has labels sorted by name.
                labels.sort_by_key(|(name, _)| *name);
                let (made, ty) = metric(labels, &value);
                field_type = ty;
                metrics.push(made);
            }
        }
        family(self.name, self.help, field_type, metrics)
    }
}

pub(super) const FAMILIES: &[SplitFamily] = &[
    SplitFamily {
        name: "apiserver_cache_list_total",
        help: "Lists that were served from the watch cache.",
        labels: BY_RESOURCE,
        split: &["index"],
        samples: |kind| by_index(kind, |lists| &lists.lists),
    },
    SplitFamily {
        name: "apiserver_cache_list_fetched_objects_total",
        help: "Objects of the watch cache that were looked at for lists.",
        labels: BY_RESOURCE,
        split: &["index"],
        samples: |kind| by_index(kind, |lists| &lists.fetched),
    },
    SplitFamily {
        name: "apiserver_cache_list_returned_objects_total",
        help: "Objects that lists from the watch cache returned.",
        labels: BY_RESOURCE,
        split: &[],
        samples: |kind| {
            let Some(reads) = reads(kind) else { return Vec::new() };
            let lists = get(&reads.cache_lists.lists) + get(&reads.indexed_lists.lists);
            let returned = get(&reads.cache_lists.returned) + get(&reads.indexed_lists.returned);
            if lists > 0 { vec![(Vec::new(), Value::Counter(returned))] } else { Vec::new() }
        },
    },
    SplitFamily {
        name: "apiserver_storage_list_total",
        help: "Lists that were served from the store.",
        labels: BY_RESOURCE,
        split: &[],
        samples: |kind| of_storage(kind, |lists| &lists.lists),
    },
    SplitFamily {
        name: "apiserver_storage_list_fetched_objects_total",
        help: "Objects that were read from the store for lists.",
        labels: BY_RESOURCE,
        split: &[],
        samples: |kind| of_storage(kind, |lists| &lists.fetched),
    },
    SplitFamily {
        name: "apiserver_storage_list_evaluated_objects_total",
        help: "Objects that were decoded for lists from the store.",
        labels: BY_RESOURCE,
        split: &[],
        // What is read is decoded; selectors apply later.
        samples: |kind| of_storage(kind, |lists| &lists.fetched),
    },
    SplitFamily {
        name: "apiserver_storage_list_returned_objects_total",
        help: "Objects that lists from the store returned.",
        labels: BY_RESOURCE,
        split: &[],
        samples: |kind| of_storage(kind, |lists| &lists.returned),
    },
    SplitFamily {
        name: "apiserver_init_events_total",
        help: "Objects that watches began with.",
        labels: BY_RESOURCE,
        split: &[],
        samples: |kind| counter(kind, |reads| &reads.initial_events),
    },
    SplitFamily {
        name: "etcd_bookmark_total",
        help: "Progress notifications of the store.",
        labels: BY_RESOURCE,
        split: &[],
        samples: |kind| counter(kind, |reads| &reads.bookmarks),
    },
    SplitFamily {
        name: "apiserver_watch_cache_consistent_read_total",
        help: "Lists of the newest state, by whether the watch cache reached it in time.",
        labels: BY_RESOURCE,
        split: &["success", "fallback"],
        samples: |kind| {
            let Some(reads) = reads(kind) else { return Vec::new() };
            let outcomes = [
                // The store is not read instead: the client is told to try again.
                ("true", &reads.consistent_reads),
                ("false", &reads.consistent_reads_failed),
            ];
            let told = outcomes.into_iter().filter(|(_, count)| get(count) > 0);
            let sample = |(success, count): (&str, &AtomicU64)| {
                (vec![success.to_owned(), "false".to_owned()], Value::Counter(get(count)))
            };
            told.map(sample).collect()
        },
    },
    SplitFamily {
        name: "apiserver_watch_cache_read_wait_seconds",
        help: "Time until the watch cache had reached a revision.",
        labels: BY_RESOURCE,
        split: &[],
        samples: |kind| {
            let waits = reads(kind).map(|reads| seconds(&reads.read_wait));
            waits.into_iter().flatten().map(|waits| (Vec::new(), waits)).collect()
        },
    },
    SplitFamily {
        name: "apiserver_storage_consistency_checks_total",
        help: "Comparisons of the watch cache with the store, by their outcome.",
        labels: BY_RESOURCE,
        split: &["status"],
        samples: |kind| {
            let Some(reads) = reads(kind) else { return Vec::new() };
            let outcomes = [
                ("success", &reads.checks_passed),
                ("failure", &reads.checks_failed),
                ("error", &reads.checks_impossible),
            ];
            let told = outcomes.into_iter().filter(|(_, count)| get(count) > 0);
            let sample = |(status, count): (&str, &AtomicU64)| {
                (vec![status.to_owned()], Value::Counter(get(count)))
            };
            told.map(sample).collect()
        },
    },
    SplitFamily {
        name: "apiserver_watch_list_duration_seconds",
        help: "Time until a watch had sent its initial events.",
        labels: BY_VERSION,
        split: &["scope"],
        samples: |kind| {
            let scopes = kind.watch_metrics.initial_events();
            let told = scopes.filter_map(|(scope, durations)| {
                Some((vec![scope.name().to_owned()], seconds(durations)?))
            });
            told.collect()
        },
    },
];

fn reads(kind: &Kind) -> Option<&ReadMetrics> {
    Some(kind.storage.as_ref()?.cache.read_metrics())
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// One value, once there is something to count.
fn counter(kind: &Kind, of: fn(&ReadMetrics) -> &AtomicU64) -> Vec<Sample> {
    let count = reads(kind).map(|reads| get(of(reads))).filter(|count| *count > 0);
    count.into_iter().map(|count| (Vec::new(), Value::Counter(count))).collect()
}

fn of_storage(kind: &Kind, of: fn(&ListCounters) -> &AtomicU64) -> Vec<Sample> {
    let Some(lists) = reads(kind).map(|reads| &reads.storage_lists) else { return Vec::new() };
    if get(&lists.lists) == 0 {
        return Vec::new();
    }
    vec![(Vec::new(), Value::Counter(get(of(lists))))]
}

/// Compat: an index has the name that kube-apiserver gives it: `f:spec.nodeName`.
fn by_index(kind: &Kind, of: fn(&ListCounters) -> &AtomicU64) -> Vec<Sample> {
    let Some(storage) = &kind.storage else { return Vec::new() };
    let reads = storage.cache.read_metrics();
    let indexed = storage.indexed_field().map(|field| format!("f:{field}")).unwrap_or_default();
    let by_index = [(String::new(), &reads.cache_lists), (indexed, &reads.indexed_lists)];
    let used = by_index.into_iter().filter(|(_, lists)| get(&lists.lists) > 0);
    used.map(|(index, lists)| (vec![index], Value::Counter(get(of(lists))))).collect()
}

fn seconds(histogram: &DurationHistogram) -> Option<Value> {
    let counts = histogram.cumulative();
    let any = counts.last().is_some_and(|all| *all > 0);
    any.then(|| Value::Seconds(histogram.bounds, counts, histogram.sum_seconds()))
}
