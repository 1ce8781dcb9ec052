//! The watch cache: the newest state of one resource and its recent events, in memory, as bytes
//! ready to send. It serves every read and every watch; `reflector` keeps it up to date.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use meta::Str;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::delta::DeltaEncoder;
use crate::reflector;
use crate::ring::{CacheCounters, EndReason, Ring};
use crate::{
    Backend, Entry, KeyValue, Materialize, Range, ReadMetrics, RingLimits, Snapshot, StoreError,
    Trigger, UnreadableObject, Watcher,
};

/// The resource that a cache holds, and its limits.
#[derive(Clone)]
pub struct CacheOptions {
    /// The key prefix of the resource, with the trailing slash: `/registry/pods/`.
    pub prefix: Str,
    pub materialize: Arc<dyn Materialize>,
    /// Which of the entries' fields is indexed (pods: `spec.nodeName`).
    pub index: Option<usize>,
    pub ring: RingLimits,
    /// How many revisions back the history of a new cache begins, if the backend still has them, so
    /// that clients that watched before a restart can resume their watches.
    pub resume_revisions: u64,
}

impl CacheOptions {
    pub fn new(prefix: impl Into<Str>, materialize: Arc<dyn Materialize>) -> Self {
        Self {
            prefix: prefix.into(),
            materialize,
            index: None,
            ring: RingLimits::default(),
            resume_revisions: 2000,
        }
    }

    #[must_use]
    pub fn index(mut self, field: Option<usize>) -> Self {
        self.index = field;
        self
    }
}

/// The watch cache of one resource. Stops when dropped; its watchers then end with `Closed`.
pub struct Cache {
    shared: Arc<Shared>,
    reflector: JoinHandle<()>,
}

/// Shared by the cache and its reflector.
pub(crate) struct Shared {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) options: CacheOptions,
    /// What readers see; replaced atomically, so that readers never wait for a writer.
    pub(crate) current: ArcSwap<Snapshot>,
    /// The events that led to `current`. Replaced when events were lost.
    pub(crate) ring: ArcSwap<Ring>,
    /// The revision of `current`, for readers that wait for one. 0 until the first list has
    /// finished.
    pub(crate) revision: watch::Sender<u64>,
    /// Some older states, from which any revision that the ring covers can be reached by few
    /// events.
    pub(crate) checkpoints: Mutex<Checkpoints>,
    /// Older states that were computed for a read, kept for the pages that follow.
    exact_snapshots: Mutex<VecDeque<Arc<Snapshot>>>,
    /// Makes new entries small; shared with the tasks that decode pages of a list.
    pub(crate) delta_encoder: Arc<DeltaEncoder>,
    pub(crate) progress_wanted: Arc<Notify>,
    pub(crate) counters: Arc<CacheCounters>,
    pub(crate) reads: Arc<ReadMetrics>,
    /// Makes the reflector list again.
    pub(crate) relist_wanted: Notify,
    /// Why the cache does not make progress, if so.
    pub(crate) failure: Mutex<Option<StoreError>>,
    /// No new watchers are accepted.
    retired: AtomicBool,
}

impl Cache {
    /// Starts to fill a cache, on the current runtime.
    pub fn start(backend: Arc<dyn Backend>, options: CacheOptions) -> Arc<Self> {
        let index = options.index;
        let progress_wanted = Arc::new(Notify::new());
        let counters = Arc::<CacheCounters>::default();
        // Replaced when the first list has finished; there can be no watchers before.
        let ring =
            Ring::new(options.ring.clone(), index, 0, progress_wanted.clone(), counters.clone());
        let shared = Arc::new(Shared {
            backend,
            current: ArcSwap::from_pointee(Snapshot::new(0, index)),
            ring: ArcSwap::from_pointee(ring),
            options,
            revision: watch::Sender::new(0),
            checkpoints: Mutex::default(),
            exact_snapshots: Mutex::default(),
            delta_encoder: Arc::default(),
            progress_wanted,
            counters,
            reads: Arc::default(),
            relist_wanted: Notify::new(),
            failure: Mutex::default(),
            retired: AtomicBool::new(false),
        });
        let reflector = tokio::spawn(reflector::run(Arc::clone(&shared)));
        Arc::new(Self { shared, reflector })
    }

    /// Waits until the first list has finished.
    pub async fn ready(&self) {
        // The sender lives as long as this cache, so waiting cannot fail.
        let _ = self.shared.revision.subscribe().wait_for(|revision| *revision > 0).await;
    }

    /// Like `ready`, but returns when the store is corrupt, since waiting does not help then.
    pub async fn ready_or_corrupt(&self) -> Result<(), StoreError> {
        while timeout(FAILURE_CHECK_INTERVAL, self.ready()).await.is_err() {
            let failure = self.shared.failure.lock().clone();
            if let Some(error @ StoreError::Corrupt(_)) = failure {
                return Err(error);
            }
        }
        Ok(())
    }

    pub fn is_ready(&self) -> bool {
        self.revision() > 0
    }

    /// The key prefix of this cache.
    pub fn prefix(&self) -> &Str {
        &self.shared.options.prefix
    }

    /// The revision of the current state.
    pub fn revision(&self) -> u64 {
        self.shared.current.load().revision
    }

    /// The current state of an object, without waiting.
    pub fn get(&self, key: &str) -> Option<Arc<Entry>> {
        self.shared.current.load().get(key).cloned()
    }

    /// The current state, without waiting.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.current.load_full()
    }

    /// A state that is not older than the call: it contains every write acknowledged before (a
    /// consistent read).
    pub async fn fresh(&self) -> Result<Arc<Snapshot>, StoreError> {
        let revision = self.shared.backend.revision().await?;
        self.at_least(revision).await
    }

    /// A state that is not older than `revision`; waits for it up to a limit.
    pub async fn at_least(&self, revision: u64) -> Result<Arc<Snapshot>, StoreError> {
        let ready = |snapshot: &Snapshot| snapshot.revision >= revision.max(1);
        let current = self.snapshot();
        if ready(&current) {
            // Counted without a look at the clock: most reads wait for nothing.
            self.shared.reads.read_wait.observe(Duration::ZERO);
            return Ok(current);
        }
        let began = Instant::now();
        let reached = self.wait_for(revision, began + REVISION_WAIT).await;
        self.shared.reads.read_wait.observe(began.elapsed());
        reached
    }

    async fn wait_for(
        &self,
        revision: u64,
        deadline: Instant,
    ) -> Result<Arc<Snapshot>, StoreError> {
        let mut reached = self.shared.revision.subscribe();
        loop {
            self.shared.progress_wanted.notify_one();
            let wait = reached.wait_for(|now| *now >= revision.max(1));
            // The request for progress is repeated: over a network a response may get lost.
            let _ = timeout(PROGRESS_RETRY, wait).await;
            let current = self.snapshot();
            if current.revision >= revision.max(1) {
                return Ok(current);
            }
            if Instant::now() >= deadline {
                return Err(self.wait_error(revision, current.revision));
            }
        }
    }

    fn wait_error(&self, asked: u64, current: u64) -> StoreError {
        match &*self.shared.failure.lock() {
            Some(failure) => failure.clone(),
            None if current == 0 => StoreError::Unavailable(INITIALIZING.into()),
            None => StoreError::TooLargeRevision { asked, current },
        }
    }

    /// One object as the backend has it now, bypassing the cache.
    pub async fn read_one(&self, key: &str) -> Result<Option<Arc<Entry>>, ReadError> {
        let Some(found) = self.shared.backend.get(key).await? else { return Ok(None) };
        let known = self.snapshot();
        // Not packed: it is dropped with the answer.
        let found = known_or_new(&*self.shared.options.materialize, &known, &found, |_| ());
        Ok(Some(found?))
    }

    /// The newest state, read from the backend, bypassing the cache.
    pub async fn read(&self) -> Result<Arc<Snapshot>, StoreError> {
        self.shared.list(None).await.map(Arc::new)
    }

    /// The state at exactly this revision: from memory as far as the ring reaches, else from the
    /// backend. Compat: in both cases until the revision is compacted, when clients expect the tokens of
    /// paged lists to expire.
    pub async fn exact(&self, revision: u64) -> Result<Arc<Snapshot>, StoreError> {
        let oldest = self.shared.backend.oldest_revision();
        if revision < oldest {
            self.shared.exact_snapshots.lock().retain(|snapshot| snapshot.revision >= oldest);
            return Err(StoreError::Compacted { oldest });
        }
        let current = self.at_least(revision).await?;
        if current.revision == revision {
            return Ok(current);
        }
        if let Some(snapshot) = self.shared.cached_snapshot(revision) {
            return Ok(snapshot);
        }
        let snapshot = match self.shared.rolled_back(current, revision) {
            Some(snapshot) => snapshot,
            None => self.shared.list(Some(revision)).await?,
        };
        let snapshot = Arc::new(snapshot);
        self.shared.cache_snapshot(&snapshot);
        Ok(snapshot)
    }

    /// The events after `after`, or only those that match the trigger.
    pub fn watch(&self, after: u64, trigger: Option<Trigger>) -> Result<Watcher, StoreError> {
        if !self.is_ready() {
            return Err(StoreError::Unavailable(INITIALIZING.into()));
        }
        Watcher::new(self.shared.ring.load_full(), after, trigger)
    }

    /// The oldest revision from which a watch can start.
    pub fn oldest(&self) -> u64 {
        self.shared.ring.load().oldest()
    }

    /// How many events are in the ring.
    pub fn events_kept(&self) -> usize {
        self.shared.ring.load().events()
    }

    /// How many events the ring can hold.
    pub fn capacity(&self) -> usize {
        self.shared.options.ring.events_max
    }

    /// How often the cache was filled: once, unless the backend lost events.
    pub fn initializations(&self) -> u64 {
        self.shared.counters.initializations.load(Ordering::Relaxed)
    }

    /// How many events were received from the backend.
    pub fn events_received(&self) -> u64 {
        self.shared.counters.received.load(Ordering::Relaxed)
    }

    /// Counters of reads.
    pub fn read_metrics(&self) -> &Arc<ReadMetrics> {
        &self.shared.reads
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.shared.backend
    }

    /// Fills the cache again, from the newest state of the backend.
    pub(crate) fn relist(&self) {
        self.shared.relist_wanted.notify_one();
    }

    /// How many watchers were terminated because they did not keep up.
    pub fn watchers_slow(&self) -> u64 {
        self.shared.counters.watchers_slow.load(Ordering::Relaxed)
    }

    /// The size of the current objects as they are served, and what the events retain beyond them. The latter is
    /// bounded by `RingLimits::bytes_max`. Memory in use is less where objects are alike, see [`ObjectJson`](crate::ObjectJson).
    pub fn bytes(&self) -> (usize, usize) {
        let objects = self.snapshot().range("", None).map(|entry| entry.json.len()).sum();
        (objects, self.shared.ring.load().bytes())
    }

    /// Ends all watchers, and those that start later. Reads in progress are still served: the cache
    /// follows the backend until it is dropped.
    pub fn retire(&self) {
        self.shared.retired.store(true, Ordering::SeqCst);
        self.shared.ring.load().end(EndReason::Closed);
    }

    /// Stops following the backend and ends all watchers.
    pub fn close(&self) {
        self.reflector.abort();
        self.shared.ring.load().end(EndReason::Closed);
    }
}

/// Why an object could not be read.
#[derive(Debug)]
pub enum ReadError {
    Store(StoreError),
    /// It exists and cannot be decoded or decrypted.
    Unreadable(UnreadableObject),
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<UnreadableObject> for ReadError {
    fn from(broken: UnreadableObject) -> Self {
        Self::Unreadable(broken)
    }
}

/// How often `ready_or_corrupt` checks whether the first list has failed.
const FAILURE_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Compat: how long a read waits for a revision that the cache has not reached, as in
/// kube-apiserver.
const REVISION_WAIT: Duration = Duration::from_secs(3);
const PROGRESS_RETRY: Duration = Duration::from_millis(100);
/// How many computed states are kept; the least recently used is dropped first.
const EXACT_SNAPSHOTS_MAX: usize = 4;
/// Compat: kube-apiserver's message while a watch cache is being filled.
const INITIALIZING: &str = "storage is (re)initializing";

impl Drop for Cache {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    /// Starts a new ring at this state. Watchers of the old ring have lost events and end with
    /// `Expired`.
    pub(crate) fn reset(&self, snapshot: Snapshot, ring: Ring) {
        let revision = snapshot.revision;
        self.checkpoints.lock().clear();
        self.current.store(Arc::new(snapshot));
        self.ring.swap(Arc::new(ring)).end(EndReason::Gap);
        if self.retired.load(Ordering::SeqCst) {
            self.ring.load().end(EndReason::Closed);
        }
        self.revision.send_replace(revision);
    }

    pub(crate) fn ring_at(&self, revision: u64) -> Ring {
        let options = &self.options;
        let (progress, counters) = (self.progress_wanted.clone(), self.counters.clone());
        Ring::new(options.ring.clone(), options.index, revision, progress, counters)
    }

    fn cached_snapshot(&self, revision: u64) -> Option<Arc<Snapshot>> {
        let mut older = self.exact_snapshots.lock();
        let at = older.iter().position(|snapshot| snapshot.revision == revision)?;
        let snapshot = older.remove(at)?;
        older.push_back(Arc::clone(&snapshot));
        Some(snapshot)
    }

    fn cache_snapshot(&self, snapshot: &Arc<Snapshot>) {
        let mut older = self.exact_snapshots.lock();
        older.push_back(Arc::clone(snapshot));
        if older.len() > EXACT_SNAPSHOTS_MAX {
            older.pop_front();
        }
    }

    /// The state at `revision`, by undoing the events since, or `None` if some of them were
    /// evicted.
    fn rolled_back(&self, current: Arc<Snapshot>, revision: u64) -> Option<Snapshot> {
        let base = self.checkpoints.lock().at_or_after(revision).unwrap_or(current);
        let events = self.ring.load().newest_first(revision, base.revision)?;
        let mut snapshot = Snapshot::clone(&base);
        for event in events {
            snapshot.undo(&event);
        }
        snapshot.revision = revision;
        Some(snapshot)
    }

    /// Reads the whole resource from the backend, in pages. Entries that the cache has already are
    /// shared.
    pub(crate) async fn list(&self, revision: Option<u64>) -> Result<Snapshot, StoreError> {
        let known = self.current.load_full();
        let mut snapshot = Snapshot::new(0, self.options.index);
        self.reads.storage_lists.begin();
        let mut range = Range::of(self.options.prefix.clone()).limit(LIST_PAGE).uncounted();
        range.revision = revision;
        // Pages are decoded on all cores while further ones are being read: with a large resource
        // this is most of the start-up time.
        let mut making: VecDeque<JoinHandle<Vec<EntryResult>>> = VecDeque::new();
        let ahead_max = (*CORES).min(PAGES_AHEAD_MAX);
        let add = |snapshot: &mut Snapshot, made: Vec<EntryResult>| {
            for entry in made {
                match entry {
                    Ok(entry) => drop(snapshot.insert(entry)),
                    Err(broken) => snapshot.insert_broken(broken),
                }
            }
        };
        loop {
            let page = self.backend.range(range.clone()).await?;
            let more = page.more;
            self.reads.storage_lists.add(page.items.len(), page.items.len());
            snapshot.revision = page.revision;
            range.revision = Some(page.revision);
            range.after = page.items.last().map(|item| item.key.clone());
            let (known, materialize) = (Arc::clone(&known), Arc::clone(&self.options.materialize));
            let delta = Arc::clone(&self.delta_encoder);
            let make = move || entries(&*materialize, &delta, &known, &page.items);
            if !more && making.is_empty() {
                add(&mut snapshot, make());
                return Ok(snapshot);
            }
            making.push_back(tokio::task::spawn_blocking(make));
            let ahead = if more { ahead_max } else { 0 };
            while making.len() > ahead
                && let Some(made) = making.pop_front()
            {
                let made = made.await;
                let made = made.map_err(|error| StoreError::Unavailable(error.to_string()))?;
                add(&mut snapshot, made);
            }
            if !more {
                return Ok(snapshot);
            }
        }
    }

    /// The entry of a changed value, or why there is none.
    pub(crate) fn entry(
        &self,
        key: &Str,
        value: &bytes::Bytes,
        revision: u64,
        problem: Option<&Str>,
    ) -> Result<Entry, UnreadableObject> {
        let mut made = entry(&*self.options.materialize, key, value, revision, problem);
        if let Ok(entry) = &mut made {
            self.delta_encoder.pack(entry);
        }
        made
    }
}

/// The entry of a stored object, or why there is none.
type EntryResult = Result<Arc<Entry>, UnreadableObject>;

/// The entries of a page.
fn entries(
    materialize: &dyn Materialize,
    delta_encoder: &DeltaEncoder,
    known: &Snapshot,
    items: &[KeyValue],
) -> Vec<EntryResult> {
    let pack = |entry: &mut Entry| delta_encoder.pack(entry);
    items.iter().map(|item| known_or_new(materialize, known, item, pack)).collect()
}

fn known_or_new(
    materialize: &dyn Materialize,
    known: &Snapshot,
    item: &KeyValue,
    pack: impl FnOnce(&mut Entry),
) -> EntryResult {
    let KeyValue { key, value, mod_revision, problem, .. } = item;
    if let Some(entry) = known.get(key).filter(|entry| entry.revision == *mod_revision) {
        return Ok(Arc::clone(entry));
    }
    let mut entry = entry(materialize, key, value, *mod_revision, problem.as_ref())?;
    pack(&mut entry);
    Ok(Arc::new(entry))
}

fn entry(
    materialize: &dyn Materialize,
    key: &Str,
    value: &bytes::Bytes,
    revision: u64,
    problem: Option<&Str>,
) -> Result<Entry, UnreadableObject> {
    let made = match problem {
        Some(problem) => Err(UnreadableObject::undecrypted(key, revision, problem)),
        None => materialize
            .entry(key, value, revision)
            .map_err(|why| UnreadableObject::undecodable(key, revision, &why)),
    };
    made.inspect_err(|broken| {
        tracing::error!(%key, revision, why = broken.why, "a stored object cannot be read");
    })
}

/// While a page is read, it is in memory twice: as stored and as served.
const LIST_PAGE: usize = 500;
/// How many pages are decoded at a time, at most.
const PAGES_AHEAD_MAX: usize = 8;
/// Asked for once: it reads the files of several control groups, and every resource lists at the start.
static CORES: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));

/// Some of the past states of the cache, oldest first, evenly spread over the events.
#[derive(Default)]
pub(crate) struct Checkpoints {
    snapshots: VecDeque<Arc<Snapshot>>,
    /// Events since the newest checkpoint.
    events_since: usize,
}

impl Checkpoints {
    /// Records that `events` follow this state.
    pub(crate) fn record(&mut self, snapshot: &Arc<Snapshot>, events: usize) {
        self.events_since += events;
        if self.events_since < CHECKPOINT_EVENTS << (self.snapshots.len() / CHECKPOINTS_DOUBLE) {
            return;
        }
        self.events_since = 0;
        self.snapshots.push_back(Arc::clone(snapshot));
        if self.snapshots.len() > CHECKPOINTS_MAX {
            self.snapshots.pop_front();
        }
    }

    /// The oldest state that is not older than `revision`.
    fn at_or_after(&self, revision: u64) -> Option<Arc<Snapshot>> {
        let at = self.snapshots.partition_point(|snapshot| snapshot.revision < revision);
        self.snapshots.get(at).cloned()
    }

    /// Drops states before `oldest`, from which no event leads further back.
    pub(crate) fn drop_before(&mut self, oldest: u64) {
        while self.snapshots.front().is_some_and(|snapshot| snapshot.revision < oldest) {
            self.snapshots.pop_front();
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Undoing this many events is quick (about 3 us each).
const CHECKPOINT_EVENTS: usize = 256;
/// The spacing doubles each time this many are held, so that a few cover the longest ring.
const CHECKPOINTS_DOUBLE: usize = 4;
/// A checkpoint holds the tree nodes that have changed since; the objects are shared with the ring.
const CHECKPOINTS_MAX: usize = 24;

#[cfg(test)]
mod tests;
