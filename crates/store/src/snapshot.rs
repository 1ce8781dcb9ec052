//! The immutable state of a resource at one revision: a LIST holds one for as long as it streams,
//! without blocking writers.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use meta::Str;

use crate::{Entry, Event, EventKind};

/// All objects of a resource at one revision. Cloning shares everything.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    pub revision: u64,
    entries: OrdMap<Str, Arc<Entry>>,
    /// Which of the entries' fields is indexed.
    field: Option<usize>,
    /// (value of the field, key) -> entry.
    index: OrdMap<(Str, Str), Arc<Entry>>,
    /// Objects that are stored but cannot be read.
    broken: OrdMap<Str, Arc<UnreadableObject>>,
}

/// A stored object that cannot be decoded or decrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableObject {
    pub key: Str,
    pub revision: u64,
    pub why: String,
}

impl UnreadableObject {
    /// Its bytes cannot be decoded.
    pub fn undecodable(key: &Str, revision: u64, why: &str) -> Self {
        // Compat: kube-apiserver's messages, here and below.
        let why = format!("object not decodable revision={revision}: {why}");
        Self { key: key.clone(), revision, why }
    }

    /// There is no key to decrypt it.
    pub fn undecrypted(key: &Str, revision: u64, why: &str) -> Self {
        let why = format!("data from the storage is not transformable revision=0: {why}");
        Self { key: key.clone(), revision, why }
    }
}

impl Snapshot {
    pub(crate) fn new(revision: u64, field: Option<usize>) -> Self {
        Self { revision, field, ..Self::default() }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn get(&self, key: &str) -> Option<&Arc<Entry>> {
        self.entries.get(key)
    }

    /// The entries whose key starts with `prefix` and is greater than `after`, by key.
    pub fn range<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Arc<Entry>> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.entries
            .range::<_, str>((start, Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(prefix))
            .map(|(_, entry)| entry)
    }

    /// The object at a key, if it exists and cannot be read.
    pub fn broken(&self, key: &str) -> Option<&Arc<UnreadableObject>> {
        self.broken.get(key)
    }

    /// The first object that cannot be read among the keys that start with `prefix` and are greater
    /// than `after`.
    pub fn first_broken(
        &self,
        prefix: &str,
        after: Option<&str>,
    ) -> Option<&Arc<UnreadableObject>> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let (key, broken) = self.broken.range::<_, str>((start, Bound::Unbounded)).next()?;
        key.starts_with(prefix).then_some(broken)
    }

    /// How many objects cannot be read.
    pub fn broken_len(&self) -> usize {
        self.broken.len()
    }

    /// The next `n` entries of a range, for callers that stream from an owned snapshot: they
    /// continue with the last key they got.
    pub fn page(&self, prefix: &str, after: Option<&str>, n: usize) -> Vec<Arc<Entry>> {
        self.range(prefix, after).take(n).cloned().collect()
    }

    /// How many keys start with `prefix`.
    pub fn count(&self, prefix: &str) -> usize {
        self.remaining(prefix, None)
    }

    /// How many keys start with `prefix` and are greater than `after`.
    pub fn remaining(&self, prefix: &str, after: Option<&str>) -> usize {
        // A list of the whole resource is the most common one, and the longest.
        let whole = after.is_none()
            && self.entries.get_min().is_none_or(|(key, _)| key.starts_with(prefix))
            && self.entries.get_max().is_none_or(|(key, _)| key.starts_with(prefix));
        if whole { self.len() } else { self.range(prefix, after).count() }
    }

    /// The entries whose indexed field has this value, by key. Empty if nothing is indexed.
    pub fn indexed<'a>(&'a self, value: &'a str) -> impl Iterator<Item = &'a Arc<Entry>> {
        let start = (Str::new(value), Str::default());
        self.index
            .range((Bound::Included(start), Bound::Unbounded))
            .take_while(move |((have, _), _)| have == value)
            .map(|(_, entry)| entry)
    }

    /// Records that the object at a key cannot be read.
    pub(crate) fn insert_broken(&mut self, broken: UnreadableObject) {
        self.remove(&broken.key);
        self.broken.insert(broken.key.clone(), Arc::new(broken));
    }

    /// Removes the record of an unreadable object; returns whether there was one.
    pub(crate) fn remove_broken(&mut self, key: &str) -> bool {
        !self.broken.is_empty() && self.broken.remove(key).is_some()
    }

    /// Inserts an entry and returns the one it replaces.
    pub(crate) fn insert(&mut self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        let previous = self.entries.insert(entry.key.clone(), Arc::clone(&entry));
        if let Some(previous) = &previous {
            self.unindex(previous);
        }
        if let Some(value) = self.field.and_then(|n| entry.field(n)) {
            self.index.insert((value.clone(), entry.key.clone()), entry);
        }
        previous
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<Arc<Entry>> {
        let previous = self.entries.remove(key)?;
        self.unindex(&previous);
        Some(previous)
    }

    fn unindex(&mut self, entry: &Entry) {
        if let Some(value) = self.field.and_then(|n| entry.field(n)) {
            self.index.remove(&(value.clone(), entry.key.clone()));
        }
    }

    /// Undoes an event that led to this state; it must be the newest.
    pub(crate) fn undo(&mut self, event: &Event) {
        match (&event.previous, event.kind) {
            (Some(previous), _) => drop(self.insert(Arc::clone(previous))),
            (None, EventKind::Deleted) => {}
            (None, _) => drop(self.remove(&event.entry.key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(keys: &[&str]) -> Snapshot {
        let mut snapshot = Snapshot::new(1, Some(0));
        for key in keys {
            let node = key.rsplit('/').next().unwrap_or_default();
            let fields = Box::from([Str::new(node)]);
            snapshot.insert(Arc::new(Entry { key: Str::new(key), fields, ..Entry::default() }));
        }
        snapshot
    }

    #[test]
    fn ranges_begin_after_a_key_and_end_with_the_prefix() {
        let snapshot = snapshot(&["/p/a/1", "/p/a/2", "/p/a0", "/p/b/1", "/p/b/3"]);
        let cases: &[(&str, Option<&str>, &[&str])] = &[
            ("/p/", None, &["/p/a/1", "/p/a/2", "/p/a0", "/p/b/1", "/p/b/3"]),
            ("/p/a/", None, &["/p/a/1", "/p/a/2"]),
            ("/p/a/", Some("/p/a/1"), &["/p/a/2"]),
            ("/p/a/", Some("/p/a/2"), &[]),
            ("/p/b/", Some("/p/a/2"), &["/p/b/1", "/p/b/3"]),
            ("/p/", Some("/p/a/2"), &["/p/a0", "/p/b/1", "/p/b/3"]),
            ("/p/c/", None, &[]),
            ("/q/", None, &[]),
        ];
        for (prefix, after, expected) in cases {
            let keys: Vec<_> = snapshot.range(prefix, *after).map(|e| e.key.as_str()).collect();
            assert_eq!(keys, *expected, "{prefix} after {after:?}");
            assert_eq!(snapshot.remaining(prefix, *after), expected.len(), "{prefix} {after:?}");
            let page = snapshot.page(prefix, *after, 2);
            assert_eq!(page.len(), expected.len().min(2));
        }
    }

    #[test]
    fn the_index_follows_changes() {
        let mut snapshot = snapshot(&["/p/a/1", "/p/a/2", "/p/b/1", "/p/b/10"]);
        let keys = |snapshot: &Snapshot, value: &str| {
            snapshot.indexed(value).map(|entry| entry.key.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(keys(&snapshot, "1"), ["/p/a/1", "/p/b/1"]);
        snapshot.remove("/p/a/1");
        let fields = Box::from([Str::new("1")]);
        snapshot.insert(Arc::new(Entry { key: "/p/a/2".into(), fields, ..Entry::default() }));
        assert_eq!(keys(&snapshot, "1"), ["/p/a/2", "/p/b/1"]);
        assert_eq!(keys(&snapshot, "2"), [""; 0]);
    }
}
