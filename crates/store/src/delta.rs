//! Finds what an object has in common with one that is in memory already, see [`ObjectJson`].

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::Entry;
use crate::object_json::{ObjectJson, push_copy, push_literal};

/// The bases of one cache.
#[derive(Default)]
pub(crate) struct DeltaEncoder {
    bases: Mutex<Bases>,
    hasher: RandomState,
}

/// Invariant: does not keep a base alive that no entry refers to, except for the few in `indexed`.
#[derive(Default)]
struct Bases {
    /// By name, see [`DeltaEncoder::names`].
    by_name: HashMap<u64, Weak<Bytes>>,
    /// What is gone is removed from `by_name` when it has this many.
    names_max: usize,
    newest: Weak<Bytes>,
    /// The bases that were used last.
    indexed: VecDeque<Arc<IndexedBase>>,
}

struct IndexedBase {
    text: Arc<Bytes>,
    index: BlockIndex,
}

impl DeltaEncoder {
    /// Makes the entry's JSON a delta, if there is an object that is similar enough; otherwise a base for those that follow.
    pub(crate) fn pack(&self, entry: &mut Entry) {
        if !(PACKED_BYTES_MIN..=PACKED_BYTES_MAX).contains(&entry.json.len()) {
            return;
        }
        let Some(text) = entry.json.take_unshared() else { return };
        let names = self.names(entry);
        if let Some(base) = self.base(names)
            && let Some(steps) = encode(&base.text, &base.index, &text, text.len() / DELTA_SHARE)
        {
            entry.json = ObjectJson::delta(Arc::clone(&base.text), text.len(), &steps);
            debug_assert!(*entry.json.text() == *text, "{} was packed wrongly", entry.key);
            return;
        }
        let base = Arc::new(text);
        self.add(names, &base);
        entry.json = ObjectJson::base(base);
    }

    /// Objects with the same name but for its last part are mostly made from one template; those of one namespace more so.
    fn names(&self, entry: &Entry) -> [u64; 2] {
        let end = entry.name.rfind(['-', '.']).unwrap_or(entry.name.len());
        let stem = &entry.name[..end];
        [self.hasher.hash_one((&entry.namespace, stem)), self.hasher.hash_one(stem)]
    }

    fn base(&self, names: [u64; 2]) -> Option<Arc<IndexedBase>> {
        let text = {
            let bases = self.bases.lock();
            let named = names.iter().find_map(|name| bases.by_name.get(name)?.upgrade());
            let text = named.or_else(|| bases.newest.upgrade())?;
            if let Some(known) = bases.indexed.iter().find(|base| Arc::ptr_eq(&base.text, &text)) {
                return Some(Arc::clone(known));
            }
            text
        };
        let index = BlockIndex::of(&text);
        let base = Arc::new(IndexedBase { text, index });
        let mut bases = self.bases.lock();
        if bases.indexed.len() >= INDEXED_MAX {
            bases.indexed.pop_front();
        }
        bases.indexed.push_back(Arc::clone(&base));
        Some(base)
    }

    fn add(&self, names: [u64; 2], base: &Arc<Bytes>) {
        let mut bases = self.bases.lock();
        if bases.by_name.len() >= bases.names_max {
            bases.by_name.retain(|_, base| base.strong_count() > 0);
            // Twice what is left, so that the work is in proportion to what comes.
            bases.names_max = NAMES_MIN.max(bases.by_name.len() * 2);
        }
        for name in names {
            bases.by_name.insert(name, Arc::downgrade(base));
        }
        bases.newest = Arc::downgrade(base);
    }
}

/// What a shorter object would save is not worth the work.
const PACKED_BYTES_MIN: usize = 512;
/// Longer objects are rare, and an attempt takes about 3 ns per byte that is not found.
const PACKED_BYTES_MAX: usize = 128 << 10;
/// A delta has at most this part of its text; an object that differs more becomes a base itself. A base may outlive its own object
/// as long as one delta refers to it, so this also bounds what deltas can waste.
const DELTA_SHARE: usize = 4;
/// To index a base again takes about 2 µs for 10 KB. Lists come in the order of names, so few bases are in use at a time.
const INDEXED_MAX: usize = 16;
const NAMES_MIN: usize = 64;

/// The steps that make `text` from `base`, or `None` if they are longer than `bytes_max`.
fn encode(base: &[u8], index: &BlockIndex, text: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    let mut steps = Vec::with_capacity(bytes_max.min(1024));
    // `base_at`: the end of the last copy.
    let (mut at, mut literal_at, mut base_at) = (0, 0, 0);
    while at < text.len() {
        if steps.len() + at - literal_at > bytes_max {
            return None;
        }
        let Some(block) = block_at(text, at) else { break };
        // Most differences are values of the same length.
        let expected = base_at + at - literal_at;
        let found = if block_at(base, expected) == Some(block) {
            Some(expected)
        } else {
            index.find(base, block)
        };
        let Some(found) = found else {
            // Faster and faster through what is not in the base.
            at += 1 + (at - literal_at) / SKIP_AFTER;
            continue;
        };
        let before = common_suffix(&text[literal_at..at], &base[..found]);
        let (from, start) = (at - before, found - before);
        let after = common_prefix(&text[at + BLOCK..], &base[found + BLOCK..]);
        let copied = start..found + BLOCK + after;
        push_literal(&mut steps, &text[literal_at..from]);
        push_copy(&mut steps, base_at, &copied);
        at += BLOCK + after;
        (literal_at, base_at) = (at, copied.end);
    }
    if literal_at < text.len() {
        push_literal(&mut steps, &text[literal_at..]);
    }
    (steps.len() <= bytes_max).then_some(steps)
}

/// A common part shorter than this is not looked for, one of twice the length is always found.
const BLOCK: usize = 16;

/// After this many bytes that were not found, not every position is looked at.
const SKIP_AFTER: usize = 64;

/// A block as a number, which compares faster than a slice.
fn block_at(text: &[u8], at: usize) -> Option<u128> {
    text.get(at..at + BLOCK)?.try_into().ok().map(u128::from_le_bytes)
}

fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    // Blockwise first: what is common is long.
    let blocks = a.chunks_exact(BLOCK).zip(b.chunks_exact(BLOCK)).take_while(|(a, b)| a == b);
    let common = blocks.count() * BLOCK;
    let rest = a[common..].iter().zip(&b[common..]).take_while(|(a, b)| a == b);
    common + rest.count()
}

/// Where the blocks of a base are. A block may be missing, if others have taken its places.
struct BlockIndex {
    /// The number of a block and one, by its hash; 0 is free. Two places per block.
    places: Box<[u16]>,
}

impl BlockIndex {
    fn of(base: &[u8]) -> Self {
        let blocks = base.len() / BLOCK;
        let mut index = Self { places: vec![0; (blocks * 2).next_power_of_two().max(2)].into() };
        for number in 0..blocks {
            let Some(block) = block_at(base, number * BLOCK) else { break };
            let place = index.place(block);
            for place in [place, place ^ 1] {
                if index.places[place] == 0 {
                    index.places[place] = number as u16 + 1;
                    break;
                }
            }
        }
        index
    }

    /// Where the block is in the base.
    fn find(&self, base: &[u8], block: u128) -> Option<usize> {
        let place = self.place(block);
        [place, place ^ 1].into_iter().find_map(|place| {
            let at = usize::from(self.places[place].checked_sub(1)?) * BLOCK;
            (block_at(base, at) == Some(block)).then_some(at)
        })
    }

    fn place(&self, block: u128) -> usize {
        let (low, high) = (block as u64, (block >> 64) as u64);
        let mixed = low.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ high;
        let mixed = mixed.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 32;
        mixed as usize & (self.places.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(namespace: &str, name: &str, json: impl Into<Bytes>) -> Entry {
        let (name, json) = (name.into(), ObjectJson::from(json));
        Entry { namespace: namespace.into(), name, json, ..Entry::default() }
    }

    /// An object of about 4 KB in which only a few values are its own.
    fn pod(template: usize, n: usize) -> String {
        let containers: Vec<String> = (0..20)
            .map(|i| {
                let image = (template * 977 + i) * 7919 % 100_003;
                format!(r#"{{"name":"c{i}","image":"registry.example.com/{image}/{}"}}"#, image * 3)
            })
            .collect();
        let spec: Vec<String> = (0..30).map(|i| format!(r#""field{i}-{template}":{i}"#)).collect();
        format!(
            r#"{{"kind":"Pod","metadata":{{"name":"web-{n}","uid":"{:x}"}},"spec":{{{},"containers":[{}],"nodeName":"node-{}"}}}}"#,
            n * 0x9e37_79b9,
            spec.join(","),
            containers.join(","),
            n % 17
        )
    }

    #[test]
    fn objects_of_one_template_are_kept_as_what_is_their_own() {
        let encoder = DeltaEncoder::default();
        let mut whole = 0;
        for n in 0..100 {
            for template in 0..5 {
                let json = pod(template, n);
                let mut entry = entry("ns", &format!("app{template}-{n}"), json.clone());
                encoder.pack(&mut entry);
                assert_eq!(entry.json.len(), json.len());
                assert_eq!(entry.json.bytes(), json);
                for range in [0..json.len(), 5..5, 0..1, 10..700, 700..json.len(), 40..60] {
                    let expected = json[range.clone()].as_bytes();
                    assert_eq!(*entry.json.slice(range.clone()), *expected, "{range:?}");
                    assert_eq!(*entry.json.slice_bytes(range), *expected);
                }
                assert!(entry.json.starts_with(b"{\"kind\":\"Pod\""));
                assert!(!entry.json.starts_with(b"{\"kind\":\"Node\""));
                if entry.json.held_bytes() == json.len() {
                    whole += 1;
                } else {
                    assert!(entry.json.held_bytes() < json.len() / 4);
                }
                // The snapshot keeps it.
                std::mem::forget(entry);
            }
        }
        assert_eq!(whole, 5, "one base each");
    }

    #[test]
    fn short_long_and_different_objects_stay_whole() {
        let encoder = DeltaEncoder::default();
        let noise = |seed: u64, len: usize| -> Vec<u8> {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) as u8
            };
            (0..len).map(|_| next()).collect()
        };
        for (seed, len) in [(1, 100), (1, 100), (2, 4000), (3, 4000), (4, 200_000), (4, 200_000)] {
            let mut entry = entry("ns", "same", noise(seed, len));
            encoder.pack(&mut entry);
            assert_eq!(entry.json.held_bytes(), len);
            assert_eq!(entry.json.bytes(), noise(seed, len));
        }
    }

    #[test]
    fn bases_go_with_the_last_object_that_needs_them() {
        let encoder = DeltaEncoder::default();
        let mut first = entry("ns", "web-1", pod(1, 1));
        let mut second = entry("ns", "web-2", pod(1, 2));
        encoder.pack(&mut first);
        encoder.pack(&mut second);
        let base = encoder.bases.lock().newest.clone();
        drop(first);
        assert_eq!(second.json.bytes(), pod(1, 2));
        drop(second);
        encoder.bases.lock().indexed.clear();
        assert_eq!(base.strong_count(), 0);
        let mut third = entry("ns", "web-3", pod(1, 3));
        encoder.pack(&mut third);
        assert_eq!(third.json.held_bytes(), third.json.len(), "a new base");
    }

    /// Texts that are cut, repeated, moved and changed come out as they went in.
    #[test]
    fn any_text_comes_back() {
        let mut state = 7_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888);
            (state >> 33) as usize % below
        };
        for round in 0..2000 {
            let base: Vec<u8> = if round % 3 == 0 {
                (0..random(3000)).map(|_| random(256) as u8).collect()
            } else {
                pod(round, round).into_bytes()[..random(1500)].to_vec()
            };
            let mut text = base.clone();
            for _ in 0..random(8) {
                let (a, b) = (random(text.len() + 1), random(text.len() + 1));
                let range = a.min(b)..a.max(b);
                match random(4) {
                    0 => drop(text.drain(range)),
                    1 => text.extend_from_within(range),
                    2 => drop(text.splice(a..a, vec![random(256) as u8; random(40)])),
                    _ if a < text.len() => text[a] ^= 1,
                    _ => {}
                }
            }
            let index = BlockIndex::of(&base);
            let steps = encode(&base, &index, &text, usize::MAX / 2).expect("no limit");
            let json = ObjectJson::delta(Arc::new(base.into()), text.len(), &steps);
            assert_eq!(*json.text(), *text);
            let (a, b) = (random(text.len() + 1), random(text.len() + 1));
            let range = a.min(b)..a.max(b);
            assert_eq!(*json.slice(range.clone()), text[range]);
        }
    }
}
