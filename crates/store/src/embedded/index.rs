//! The in-memory index: for each key its versions and their places in the log, for each revision
//! its key. Values stay on disk.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use meta::Str;

use super::record::{RecordHeader, RecordKind};
use super::segment::Segment;
use crate::{Range, StoreError};

/// The index of the log.
#[derive(Default)]
pub(crate) struct Index {
    /// The newest revision.
    pub(crate) revision: u64,
    /// The oldest revision whose state can be read.
    pub(crate) compacted: u64,
    keys: BTreeMap<Str, Versions>,
    /// The keys of the revisions after `pruned`, one each.
    history: VecDeque<Str>,
    /// Up to which revision versions have been dropped; follows `compacted` in steps.
    pruned: u64,
    pub(crate) segments: BTreeMap<u64, SegmentUsage>,
}

/// A segment and how much of it is live.
pub(crate) struct SegmentUsage {
    pub(crate) segment: Arc<Segment>,
    /// Where its records end.
    pub(crate) bytes: u64,
    /// Bytes of the records that the index refers to.
    pub(crate) live: u64,
    /// The newest revision that was first written to this segment.
    pub(crate) newest: u64,
}

/// The versions of a key; mostly there is just one.
struct Versions {
    newest: Version,
    /// Oldest first.
    older: Vec<Version>,
}

/// One version of a key and its place in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) revision: u64,
    pub(crate) create_revision: u64,
    pub(crate) segment: u64,
    pub(crate) offset: u32,
    pub(crate) len: u32,
    pub(crate) deleted: bool,
}

/// A version and its segment, which stays readable as long as this is held.
pub(crate) struct StoredVersion {
    pub(crate) key: Str,
    pub(crate) version: Version,
    pub(crate) segment: Arc<Segment>,
}

impl Version {
    pub(crate) fn of(header: &RecordHeader, segment: u64, offset: u32, len: u32) -> Self {
        Self {
            revision: header.revision,
            create_revision: header.create_revision,
            segment,
            offset,
            len,
            deleted: header.kind == RecordKind::Delete,
        }
    }
}

impl Index {
    pub(crate) fn new(revision: u64, compacted: u64) -> Self {
        Self { revision, compacted, pruned: compacted, ..Self::default() }
    }

    /// The newest version of a key, if it exists.
    pub(crate) fn newest(&self, key: &str) -> Option<Version> {
        self.keys.get(key).map(|versions| versions.newest).filter(|version| !version.deleted)
    }

    pub(crate) fn locate(&self, key: Str, version: Version) -> Result<StoredVersion, StoreError> {
        let segment = self.segments.get(&version.segment).map(|used| Arc::clone(&used.segment));
        let segment = segment
            .ok_or_else(|| StoreError::Corrupt(format!("segment {} is gone", version.segment)))?;
        Ok(StoredVersion { key, version, segment })
    }

    /// The versions of a range, their revision, and how many keys follow.
    pub(crate) fn range(
        &self,
        range: &Range,
    ) -> Result<(Vec<StoredVersion>, u64, u64), StoreError> {
        let at = range.revision.unwrap_or(self.revision);
        self.check(at)?;
        let start = match &range.after {
            Some(after) if *after >= range.prefix => Bound::Excluded(after.as_str()),
            _ => Bound::Included(range.prefix.as_str()),
        };
        // Computed once instead of comparing the prefix of every key: the keys after a page are
        // counted, and a large resource is read in many pages.
        let prefix_end = prefix_end(&range.prefix);
        let end = prefix_end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let limit = if range.limit == 0 { usize::MAX } else { range.limit };
        let (mut found, mut remaining) = (Vec::new(), 0);
        if is_empty_range(start, end) {
            return Ok((found, at, remaining));
        }
        for (key, versions) in self.keys.range::<str, _>((start, end)) {
            let Some(version) = versions.visible_at(at) else { continue };
            if found.len() < limit {
                found.push(self.locate(key.clone(), version)?);
            } else {
                remaining += 1;
                if range.uncounted {
                    break;
                }
            }
        }
        Ok((found, at, remaining))
    }

    /// Whether the state at a revision can be read.
    pub(crate) fn check(&self, revision: u64) -> Result<(), StoreError> {
        if revision < self.compacted {
            return Err(StoreError::Compacted { oldest: self.compacted });
        }
        if revision > self.revision {
            return Err(StoreError::Future { asked: revision, current: self.revision });
        }
        Ok(())
    }

    /// The versions written after `after` to keys under `prefix`, within the next `steps`
    /// revisions, and the last of these revisions.
    pub(crate) fn changes_after(
        &self,
        prefix: &str,
        after: u64,
        steps: usize,
    ) -> Result<(Vec<StoredVersion>, u64), StoreError> {
        if after < self.compacted {
            return Err(StoreError::Compacted { oldest: self.compacted });
        }
        let from = after.saturating_sub(self.pruned) as usize;
        let mut found = Vec::new();
        let mut reached = after;
        for key in self.history.iter().skip(from).take(steps) {
            reached += 1;
            if key.starts_with(prefix) {
                let version = self.keys.get(key).and_then(|versions| versions.at_revision(reached));
                let version = version.ok_or_else(|| {
                    StoreError::Corrupt(format!("revision {reached} of {key} is missing"))
                })?;
                found.push(self.locate(key.clone(), version)?);
            }
        }
        Ok((found, reached))
    }

    /// Adds the next revision.
    pub(crate) fn append(&mut self, key: Str, version: Version) {
        self.revision = version.revision;
        // Shares the key with the map, so that it is in memory once.
        let key = self.keys.get_key_value(&key).map_or(key, |(known, _)| known.clone());
        self.history.push_back(key.clone());
        self.insert(key, version);
        if let Some(used) = self.segments.get_mut(&version.segment) {
            used.newest = used.newest.max(version.revision);
        }
    }

    /// Adds a version, or moves a known version to a new place.
    pub(crate) fn insert(&mut self, key: Str, version: Version) {
        let replaced = match self.keys.entry(key) {
            std::collections::btree_map::Entry::Vacant(vacant) => {
                vacant.insert(Versions { newest: version, older: Vec::new() });
                None
            }
            std::collections::btree_map::Entry::Occupied(mut occupied) => {
                occupied.get_mut().insert(version)
            }
        };
        if let Some(used) = self.segments.get_mut(&version.segment) {
            used.live += u64::from(version.len);
        }
        if let Some(replaced) = replaced {
            self.release(replaced);
        }
    }

    fn release(&mut self, version: Version) {
        if let Some(used) = self.segments.get_mut(&version.segment) {
            used.live -= u64::from(version.len);
        }
    }

    /// Removes a version that was replaced.
    pub(crate) fn remove(&mut self, key: &str, revision: u64) {
        let Some(versions) = self.keys.get_mut(key) else { return };
        let removed = if versions.newest.revision == revision {
            let removed = versions.newest;
            match versions.older.pop() {
                Some(newest) => versions.newest = newest,
                None => drop(self.keys.remove(key)),
            }
            removed
        } else {
            let at = versions.older.binary_search_by_key(&revision, |version| version.revision);
            let Ok(at) = at else { return };
            versions.older.remove(at)
        };
        self.release(removed);
    }

    /// Whether the index refers to the record in this segment; if so, the revision that replaced it
    /// (0: none).
    pub(crate) fn refers_to(&self, key: &str, revision: u64, segment: u64) -> Option<u64> {
        let versions = self.keys.get(key)?;
        let version = versions.at_revision(revision)?;
        (version.segment == segment).then(|| versions.next_after(revision))
    }

    /// Sets the history after `compacted`, as recovered.
    pub(crate) fn set_history(&mut self, history: VecDeque<Str>) {
        self.history = history;
        self.pruned = self.compacted;
    }

    pub(crate) fn history_len(&self) -> usize {
        self.history.len()
    }

    /// Drops versions that compaction made unreachable, for at most `steps` revisions. Returns
    /// whether there are more.
    pub(crate) fn prune(&mut self, steps: usize) -> bool {
        for _ in 0..steps {
            if self.pruned >= self.compacted {
                return false;
            }
            let Some(key) = self.history.pop_front() else { return false };
            self.pruned += 1;
            self.prune_key(&key);
        }
        self.pruned < self.compacted
    }

    /// The same for all keys, without the history.
    pub(crate) fn prune_all(&mut self) {
        let keys: Vec<Str> = self.keys.keys().cloned().collect();
        for key in keys {
            self.prune_key(&key);
        }
    }

    fn prune_key(&mut self, key: &Str) {
        let Some(versions) = self.keys.get_mut(key) else { return };
        let (released, gone) = versions.compact(self.compacted);
        if gone {
            self.keys.remove(key);
        }
        for version in released {
            self.release(version);
        }
    }

    /// All bytes of the log, and the live ones.
    pub(crate) fn usage(&self) -> (u64, u64) {
        self.segments
            .values()
            .fold((0, 0), |(bytes, live), used| (bytes + used.bytes, live + used.live))
    }
}

/// The first string after all that begin with a prefix (`range_end`); `None` if there is none.
fn prefix_end(prefix: &str) -> Option<String> {
    // Increments the last character that has a successor and drops the rest.
    prefix.char_indices().rev().find_map(|(at, last)| {
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32)?;
        let mut text = prefix[..at].to_owned();
        text.push(next);
        Some(text)
    })
}

/// Whether a range ends before it begins, for which `BTreeMap::range` panics.
fn is_empty_range(start: Bound<&str>, end: Bound<&str>) -> bool {
    match (start, end) {
        (Bound::Included(start) | Bound::Excluded(start), Bound::Excluded(end)) => start >= end,
        _ => false,
    }
}

impl Versions {
    /// The version that a read at this revision returns.
    fn visible_at(&self, revision: u64) -> Option<Version> {
        let version = if self.newest.revision <= revision {
            self.newest
        } else {
            let behind = self.older.partition_point(|version| version.revision <= revision);
            self.older[behind.checked_sub(1)?]
        };
        (!version.deleted).then_some(version)
    }

    fn at_revision(&self, revision: u64) -> Option<Version> {
        if self.newest.revision == revision {
            return Some(self.newest);
        }
        let at = self.older.binary_search_by_key(&revision, |version| version.revision).ok()?;
        Some(self.older[at])
    }

    /// The revision of the version that follows, 0 if none does.
    fn next_after(&self, revision: u64) -> u64 {
        if revision >= self.newest.revision {
            return 0;
        }
        let behind = self.older.partition_point(|version| version.revision <= revision);
        self.older.get(behind).map_or(self.newest.revision, |version| version.revision)
    }

    /// Inserts a version and returns the one of the same revision that it replaces.
    fn insert(&mut self, version: Version) -> Option<Version> {
        if version.revision > self.newest.revision {
            self.older.push(std::mem::replace(&mut self.newest, version));
            return None;
        }
        if version.revision == self.newest.revision {
            return Some(std::mem::replace(&mut self.newest, version));
        }
        match self.older.binary_search_by_key(&version.revision, |version| version.revision) {
            Ok(at) => Some(std::mem::replace(&mut self.older[at], version)),
            Err(at) => {
                self.older.insert(at, version);
                None
            }
        }
    }

    /// Drops versions that neither the state at `revision` nor later ones need. Returns them, and
    /// whether none is left.
    fn compact(&mut self, revision: u64) -> (Vec<Version>, bool) {
        let mut released: Vec<Version>;
        if self.newest.revision <= revision {
            released = std::mem::take(&mut self.older);
            if self.newest.deleted {
                released.push(self.newest);
                return (released, true);
            }
        } else {
            let behind = self.older.partition_point(|version| version.revision <= revision);
            // The last version up to `revision` is its state, unless it is a deletion.
            let keep = behind.checked_sub(1).filter(|last| !self.older[*last].deleted);
            released = self.older.drain(..keep.unwrap_or(behind)).collect();
            if self.older.is_empty() {
                self.older = Vec::new();
            }
        }
        (released, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_a_prefix_sort_before_its_end() {
        let cases = [
            ("", None),
            ("/registry/pods/", Some("/registry/pods0")),
            ("a", Some("b")),
            ("\u{d7ff}", Some("\u{e000}")),
            ("a\u{10ffff}", Some("b")),
            ("\u{10ffff}", None),
        ];
        for (prefix, end) in cases {
            assert_eq!(prefix_end(prefix).as_deref(), end, "{prefix:?}");
            for rest in ["", "0", "\u{10ffff}\u{10ffff}"] {
                let key = format!("{prefix}{rest}");
                assert!(end.is_none_or(|end| key.as_str() < end), "{key:?}");
            }
        }
    }
}
