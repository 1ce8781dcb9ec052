//! Encodings that entries keep beside their JSON (protobuf, other versions, table rows, compressed pieces), within a number of
//! bytes for the whole process.
//!
//! A hit takes no lock. What is kept is in one queue, whose front is evicted if it was not used since it came there (second
//! chance). While the budget is used up, only every eighth encoding looks for a place: a client that lists more than fits
//! would otherwise replace everything with every list and find nothing; so it finds the part that stays.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use parking_lot::Mutex;

/// The encodings of one entry. Most objects are only ever read as JSON, so an unused set costs two words.
#[derive(Debug, Default)]
pub struct CachedEncodings(OnceLock<Arc<EncodingSet>>);

impl CachedEncodings {
    /// Encodings within another budget than the process's.
    #[cfg(test)]
    fn within(cache: &'static EncodingCache) -> Self {
        let encodings = Self::default();
        encodings.set(cache);
        encodings
    }

    /// The encoding with this number, if it is kept.
    pub(crate) fn get(&self, number: u32) -> Option<Bytes> {
        let kept = self.0.get()?.kept.load();
        let kept = find(kept.as_ref()?, number)?;
        let uses = kept.uses.load(Relaxed);
        if uses < USES_MAX {
            // Two readers at once may count as one.
            kept.uses.store(uses + 1, Relaxed);
        }
        Some(kept.bytes.clone())
    }

    pub(crate) fn has(&self, number: u32) -> bool {
        self.0.get().is_some_and(|set| {
            set.kept.load().as_ref().is_some_and(|kept| find(kept, number).is_some())
        })
    }

    /// Whether it is worth a try to keep so many bytes.
    pub(crate) fn has_place(&self, bytes: usize) -> bool {
        self.cache().has_place(bytes)
    }

    /// Keeps an encoding if there is a place for it. One that another thread has kept meanwhile stays, unless `replace`.
    pub(crate) fn keep(&self, number: u32, bytes: &[u8], replace: bool) {
        let cache = self.cache();
        cache.keep(self.set(cache), number, bytes, replace);
    }

    /// Keeps an encoding as long as the entry lives, whatever the budget.
    pub(crate) fn pin(&self, number: u32, bytes: &[u8]) {
        let cache = self.cache();
        cache.pin(self.set(cache), number, bytes);
    }

    fn cache(&self) -> &'static EncodingCache {
        self.0.get().map_or(&PROCESS, |set| set.cache)
    }

    fn set(&self, cache: &'static EncodingCache) -> &Arc<EncodingSet> {
        self.0.get_or_init(|| Arc::new(EncodingSet { cache, kept: ArcSwapOption::empty() }))
    }
}

/// Invariant: changed only while the queue of its cache is locked.
#[derive(Debug)]
struct EncodingSet {
    cache: &'static EncodingCache,
    kept: ArcSwapOption<Vec<Arc<Kept>>>,
}

impl EncodingSet {
    fn find(&self, number: u32) -> Option<Arc<Kept>> {
        find(self.kept.load().as_ref()?, number).cloned()
    }

    fn insert(&self, new: Arc<Kept>) {
        let mut kept = self.without(new.number);
        kept.push(new);
        self.kept.store(Some(Arc::new(kept)));
    }

    fn remove(&self, number: u32) {
        let rest = self.without(number);
        self.kept.store((!rest.is_empty()).then(|| Arc::new(rest)));
    }

    /// Copies what is kept, which is little: an object is read in one or two formats.
    fn without(&self, number: u32) -> Vec<Arc<Kept>> {
        let kept = self.kept.load();
        let kept: &[Arc<Kept>] = kept.as_ref().map_or(&[], |kept| kept.as_slice());
        let mut rest = Vec::with_capacity(kept.len() + 1);
        rest.extend(kept.iter().filter(|kept| kept.number != number).cloned());
        rest
    }
}

fn find(kept: &[Arc<Kept>], number: u32) -> Option<&Arc<Kept>> {
    kept.iter().find(|kept| kept.number == number)
}

#[derive(Debug)]
struct Kept {
    /// The counter that its bytes are counted in.
    counted_in: &'static AtomicUsize,
    set: Weak<EncodingSet>,
    number: u32,
    /// Uses since it was last looked at for eviction, up to [`USES_MAX`].
    uses: AtomicU8,
    bytes: Bytes,
}

/// How many times an encoding is passed over that was used often.
const USES_MAX: u8 = 3;

/// Gives the bytes back when it is evicted or replaced, and when the entry goes.
impl Drop for Kept {
    fn drop(&mut self) {
        self.counted_in.fetch_sub(cost(self.bytes.len()), Relaxed);
    }
}

fn cost(bytes: usize) -> usize {
    bytes + OVERHEAD_BYTES
}

/// What keeping an encoding costs beside its bytes: the set, its places in the set and in the queue, reference counts.
const OVERHEAD_BYTES: usize = 224;

/// The budget of all encodings, and what is kept within it.
#[derive(Debug)]
pub struct EncodingCache {
    bytes_max: AtomicUsize,
    bytes: AtomicUsize,
    pinned_bytes: AtomicUsize,
    evicted: AtomicU64,
    refused: AtomicU64,
    queue: Mutex<Queue>,
}

/// What may be evicted, the oldest first. What is gone (replaced, or with its entry) leaves its place here for a while.
#[derive(Debug)]
struct Queue {
    places: VecDeque<Weak<Kept>>,
    /// Places of what is gone are removed when there are this many places.
    places_max: usize,
}

static PROCESS: EncodingCache = EncodingCache::new(ENCODING_CACHE_BYTES);

/// `--encoding-cache-size`, unless it is set.
pub const ENCODING_CACHE_BYTES: usize = 96 << 20;

/// While there is no place, one in so many encodings looks for one.
const TRIES: u64 = 8;
/// One encoding may take this part of the budget.
const SHARE: usize = 16;
/// How many places are looked at to keep one encoding.
const STEPS_MAX: usize = 64;
const PLACES_MIN: usize = 1024;

impl EncodingCache {
    const fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max: AtomicUsize::new(bytes_max),
            bytes: AtomicUsize::new(0),
            pinned_bytes: AtomicUsize::new(0),
            evicted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            queue: Mutex::new(Queue { places: VecDeque::new(), places_max: PLACES_MIN }),
        }
    }

    /// The cache of this process; several servers in one process share it.
    pub fn process() -> &'static Self {
        &PROCESS
    }

    /// Sets the budget; 0 keeps nothing. What is above it goes at once.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Relaxed);
        let mut queue = self.queue.lock();
        while self.bytes() > bytes_max
            && let Some(place) = queue.places.pop_front()
        {
            if let Some(kept) = place.upgrade() {
                self.evict(&kept);
            }
        }
    }

    pub fn bytes_max(&self) -> usize {
        self.bytes_max.load(Relaxed)
    }

    /// What is kept within the budget.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// What is kept whatever the budget.
    pub fn pinned_bytes(&self) -> usize {
        self.pinned_bytes.load(Relaxed)
    }

    /// How many encodings left their place to others.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }

    /// How often the budget was used up when an encoding was made.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Takes no lock: lists that find no place do not wait for each other.
    fn has_place(&self, bytes: usize) -> bool {
        let cost = cost(bytes);
        self.may_have(cost)
            && (self.fits(cost) || self.refused.fetch_add(1, Relaxed).is_multiple_of(TRIES))
    }

    fn may_have(&self, cost: usize) -> bool {
        cost <= self.bytes_max() / SHARE
    }

    fn fits(&self, cost: usize) -> bool {
        self.bytes() + cost <= self.bytes_max()
    }

    fn keep(&'static self, set: &Arc<EncodingSet>, number: u32, bytes: &[u8], replace: bool) {
        // What an encoder returns often has room for twice as many.
        let bytes = Bytes::copy_from_slice(bytes);
        let cost = cost(bytes.len());
        let mut queue = self.queue.lock();
        if set.find(number).is_some() {
            if !replace {
                return;
            }
            set.remove(number);
        }
        if !self.may_have(cost) || !self.make_place(&mut queue, cost) {
            return;
        }
        // Invariant: bytes are added under the lock only, so they still fit.
        self.bytes.fetch_add(cost, Relaxed);
        let kept = Arc::new(Kept {
            counted_in: &self.bytes,
            set: Arc::downgrade(set),
            number,
            uses: AtomicU8::new(0),
            bytes,
        });
        queue.push(Arc::downgrade(&kept));
        set.insert(kept);
    }

    fn pin(&'static self, set: &Arc<EncodingSet>, number: u32, bytes: &[u8]) {
        let bytes = Bytes::copy_from_slice(bytes);
        let _changing = self.queue.lock();
        if set.find(number).is_some() {
            return;
        }
        self.pinned_bytes.fetch_add(cost(bytes.len()), Relaxed);
        set.insert(Arc::new(Kept {
            counted_in: &self.pinned_bytes,
            set: Weak::new(),
            number,
            uses: AtomicU8::new(0),
            bytes,
        }));
    }

    /// Evicts until `cost` bytes fit. Stops at an encoding that was used since it was last looked at: the new one may be
    /// used less.
    fn make_place(&self, queue: &mut Queue, cost: usize) -> bool {
        for _ in 0..STEPS_MAX {
            if self.fits(cost) {
                return true;
            }
            let Some(place) = queue.places.pop_front() else { return false };
            let Some(kept) = place.upgrade() else { continue };
            let uses = kept.uses.load(Relaxed);
            if uses > 0 {
                kept.uses.store(uses - 1, Relaxed);
                queue.places.push_back(place);
                return false;
            }
            self.evict(&kept);
        }
        self.fits(cost)
    }

    fn evict(&self, kept: &Arc<Kept>) {
        // Otherwise it was replaced or its entry went a moment ago.
        if let Some(set) = kept.set.upgrade()
            && set.find(kept.number).is_some_and(|current| Arc::ptr_eq(&current, kept))
        {
            set.remove(kept.number);
            self.evicted.fetch_add(1, Relaxed);
        }
    }
}

impl Queue {
    fn push(&mut self, place: Weak<Kept>) {
        if self.places.len() >= self.places_max {
            self.places.retain(|place| place.strong_count() > 0);
            // Twice what is left, so that the work is in proportion to what comes.
            self.places_max = PLACES_MIN.max(self.places.len() * 2);
        }
        self.places.push_back(place);
    }
}

#[cfg(test)]
mod tests;
