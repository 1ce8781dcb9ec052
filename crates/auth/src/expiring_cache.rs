//! A bounded cache whose entries expire; the entry that was not used for the longest time makes room.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use sha2::{Digest as _, Sha256};

/// Keys are hashes, so that neither long keys nor tokens stay in memory.
pub(crate) type Key = [u8; 32];

/// The hash of several texts; each comes with its length, so that `a`, `bc` is not `ab`, `c`.
pub(crate) fn key<'a>(parts: impl IntoIterator<Item = &'a str>) -> Key {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

pub(crate) struct ExpiringCache<V> {
    entries_max: usize,
    state: Mutex<State<V>>,
}

struct State<V> {
    entries: HashMap<Key, Entry<V>>,
    /// By the time of their last use.
    order: BTreeMap<u64, Key>,
    uses: u64,
}

struct Entry<V> {
    value: V,
    until: Instant,
    used: u64,
}

impl<V: Clone> ExpiringCache<V> {
    pub(crate) fn new(entries_max: usize) -> Self {
        let state = State { entries: HashMap::new(), order: BTreeMap::new(), uses: 0 };
        Self { entries_max, state: Mutex::new(state) }
    }

    pub(crate) fn get(&self, key: &Key, now: Instant) -> Option<V> {
        let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = state.entries.get_mut(key)?;
        if entry.until <= now {
            state.order.remove(&entry.used);
            state.entries.remove(key);
            return None;
        }
        state.uses += 1;
        state.order.remove(&entry.used);
        state.order.insert(state.uses, *key);
        entry.used = state.uses;
        Some(entry.value.clone())
    }

    /// Keeps a value for a time; zero: not at all.
    pub(crate) fn put(&self, key: Key, value: V, ttl: Duration, now: Instant) {
        if ttl.is_zero() {
            return;
        }
        let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.uses += 1;
        let entry = Entry { value, until: now + ttl, used: state.uses };
        if let Some(old) = state.entries.insert(key, entry) {
            state.order.remove(&old.used);
        }
        state.order.insert(state.uses, key);
        while state.entries.len() > self.entries_max {
            let Some((_, oldest)) = state.order.pop_first() else { break };
            state.entries.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_expire_and_the_least_recently_used_one_makes_room() {
        let (cache, now) = (ExpiringCache::new(2), Instant::now());
        let [a, b, c] = ["a", "b", "c"].map(|text| key([text]));
        let ttl = Duration::from_secs(10);
        cache.put(a, 1, ttl, now);
        cache.put(b, 2, ttl, now);
        assert_eq!(cache.get(&a, now), Some(1));
        cache.put(c, 3, ttl, now);
        assert_eq!([&a, &b, &c].map(|key| cache.get(key, now)), [Some(1), None, Some(3)]);
        assert_eq!(cache.get(&a, now + ttl), None);
        cache.put(b, 4, Duration::ZERO, now);
        assert_eq!(cache.get(&b, now), None);
        let state = cache.state.lock().unwrap();
        assert_eq!(state.entries.len(), state.order.len());
    }

    #[test]
    fn keys_depend_on_where_a_part_ends() {
        assert_ne!(key(["ab", "c"]), key(["a", "bc"]));
        assert_ne!(key(["ab"]), key(["ab", ""]));
    }
}
