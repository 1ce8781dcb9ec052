//! How many watches an object's events are sent to.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use meta::{Query, RequestInfo, selector::FieldSelector};

/// Watches by what they select.
#[derive(Default)]
pub(crate) struct WatchTracker {
    hasher: RandomState,
    /// By the hash of group, resource, namespace and name: a write looks three of them up and
    /// should not build keys for it. A collision makes an estimate a little wrong.
    counts: Mutex<HashMap<u64, u64>>,
}

impl WatchTracker {
    /// None if it counts for no write.
    pub(crate) fn register(
        self: &Arc<Self>,
        info: &RequestInfo,
        query: &str,
    ) -> Option<WatchRegistration> {
        // Compat: watches of the pods of a node are found by index; a write of a pod is sent to one
        // of them only, so none is counted.
        if info.resource == "pods" && !node_name(query).is_empty() {
            return None;
        }
        let key = self.key(info, &info.namespace, &info.name);
        *self.lock().entry(key).or_default() += 1;
        Some(WatchRegistration { tracker: Arc::clone(self), key })
    }

    /// Watches of the resource, of the namespace and of the object itself.
    pub(crate) fn interested(&self, info: &RequestInfo) -> u64 {
        let mut keys = [Some(self.key(info, "", "")), None, None];
        if !info.namespace.is_empty() {
            keys[1] = Some(self.key(info, &info.namespace, ""));
        }
        if !info.name.is_empty() {
            keys[2] = Some(self.key(info, &info.namespace, &info.name));
        }
        let counts = self.lock();
        keys.iter().flatten().filter_map(|key| counts.get(key)).sum()
    }

    fn key(&self, info: &RequestInfo, namespace: &str, name: &str) -> u64 {
        self.hasher.hash_one((info.group.as_str(), info.resource.as_str(), namespace, name))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, u64>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The node that a watch of pods selects.
fn node_name(query: &str) -> String {
    let Ok(query) = Query::parse(query) else { return String::new() };
    let selector = FieldSelector::parse(query.text("fieldSelector")).unwrap_or_default();
    selector.exact_value("spec.nodeName").unwrap_or_default().to_owned()
}

/// A watch counts until this is dropped.
pub struct WatchRegistration {
    tracker: Arc<WatchTracker>,
    key: u64,
}

impl Drop for WatchRegistration {
    fn drop(&mut self) {
        let mut counts = self.tracker.lock();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(verb: &str, resource: &str, namespace: &str, name: &str) -> RequestInfo {
        RequestInfo {
            verb: verb.into(),
            is_resource: true,
            resource: resource.into(),
            namespace: namespace.into(),
            name: name.into(),
            ..RequestInfo::default()
        }
    }

    #[test]
    fn a_write_counts_the_watches_that_hear_of_it() {
        let tracker = Arc::new(WatchTracker::default());
        // Resource, namespace, name, query.
        let watches = [
            ("pods", "", "", ""),
            ("pods", "", "", "fieldSelector=spec.nodeName%3Dnode-1"),
            ("pods", "", "", "fieldSelector=spec.nodeName%3D"),
            ("pods", "a", "", ""),
            ("pods", "a", "x", ""),
            ("pods", "b", "", ""),
            ("nodes", "", "", ""),
            ("nodes", "", "n", ""),
        ];
        let held: Vec<_> = watches
            .iter()
            .map(|(resource, namespace, name, query)| {
                tracker.register(&info("watch", resource, namespace, name), query)
            })
            .collect();
        let writes = [
            (("pods", "a", "x"), 4),
            (("pods", "a", "y"), 3),
            (("pods", "c", "x"), 2),
            (("nodes", "", "n"), 2),
            (("nodes", "", "m"), 1),
            (("secrets", "a", "x"), 0),
        ];
        for ((resource, namespace, name), expected) in writes {
            let write = info("update", resource, namespace, name);
            assert_eq!(tracker.interested(&write), expected, "{resource} {namespace} {name}");
        }
        drop(held);
        assert!(tracker.lock().is_empty());
    }
}
