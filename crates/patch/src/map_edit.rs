//! Many changes of one object: linear in all members, where one insertion or removal after another
//! would move all later members each time.

use std::collections::BTreeMap;

use meta::{Map, Str, Value};

/// An object that is being changed.
pub(crate) struct MapEdit {
    /// Sorted by key. None: removed or taken.
    entries: Vec<(Str, Option<Value>)>,
    /// Members that the object did not have.
    added: BTreeMap<Str, Value>,
}

impl MapEdit {
    pub(crate) fn new(map: Map) -> Self {
        let entries = map.into_iter().map(|(key, value)| (key, Some(value))).collect();
        Self { entries, added: BTreeMap::new() }
    }

    /// Removes a member.
    pub(crate) fn take(&mut self, key: &str) -> Option<Value> {
        match self.find(key) {
            Some(at) => self.entries[at].1.take(),
            None => self.added.remove(key),
        }
    }

    pub(crate) fn set(&mut self, key: &Str, value: Value) {
        match self.find(key) {
            Some(at) => self.entries[at].1 = Some(value),
            None => drop(self.added.insert(key.clone(), value)),
        }
    }

    pub(crate) fn finish(self) -> Map {
        let kept = self.entries.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let mut pairs: Vec<(Str, Value)> = kept.collect();
        pairs.extend(self.added);
        Map::from_pairs(pairs)
    }

    fn find(&self, key: &str) -> Option<usize> {
        self.entries.binary_search_by(|(probe, _)| probe.as_str().cmp(key)).ok()
    }
}
