//! The seam under everything that is stored: a revisioned key-value store, as etcd's.
//!
//! There is one revision counter for the whole store; each write gets the next number. A write
//! names the revision it expects its key to be at, so two writers never overwrite each other
//! unknowingly. Old revisions can be read and watched from until they are compacted.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use meta::Str;

/// A future that can be returned from a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A revisioned key-value store.
pub trait Backend: Send + Sync + 'static {
    /// The newest value of a key; sees every write acknowledged before the call.
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<KeyValue>, StoreError>>;

    /// The keys of a range in order, now or at a revision.
    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult, StoreError>>;

    /// Writes one key if it is at the expected revision, and answers the revision of the write.
    /// The write is durable when this resolves. Deleting what is absent is a `Conflict` without a
    /// current value, whatever was expected.
    fn write(&self, write: Write) -> BoxFuture<'_, Result<u64, StoreError>>;

    /// The newest committed revision; not older than any acknowledged write.
    fn revision(&self) -> BoxFuture<'_, Result<u64, StoreError>>;

    /// Forgets what was overwritten or deleted up to `revision`: afterwards ranges below it and
    /// watches from before it answer `Compacted`. Compacting twice does nothing.
    fn compact(&self, revision: u64) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Every change of a key under `prefix` with a revision above `after`, in order.
    fn watch(&self, prefix: &str, after: u64) -> BoxFuture<'_, Result<WatchStream, StoreError>>;

    /// Whether a key's newest value should be written again although it does not change, because it
    /// is kept in another form (encrypted by an old key) than a write now would give it.
    fn is_stale(&self, key: &str) -> BoxFuture<'_, Result<bool, StoreError>> {
        let _ = key;
        Box::pin(std::future::ready(Ok(false)))
    }
}

/// A watch that is under way.
pub trait Watch: Send {
    /// The next changes, or progress alone. Dropping the future loses nothing (it may be raced
    /// against a timer). After an error the watch is over; `Compacted` says that changes are lost.
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, StoreError>>;

    /// Asks for a batch soon, even an empty one, so that a quiet prefix learns how far the store
    /// has come.
    fn request_progress(&mut self);
}

/// A watch as a backend hands it out.
pub type WatchStream = Box<dyn Watch>;

/// Changes in the order of their revisions, and how far the watch is with them.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// What changed; empty when the batch only tells progress.
    pub changes: Vec<Change>,
    /// Every change of the prefix up to this revision has now been handed over.
    pub revision: u64,
}

/// One write as a watch sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub key: Str,
    /// The revision of this write.
    pub revision: u64,
    /// The revision at which the key came into being; 0 for a deletion where the backend doesn't
    /// tell (etcd would send the old value along with it).
    pub create_revision: u64,
    /// The new value, `None` when the key was deleted.
    pub value: Option<Bytes>,
    /// Why the value cannot be read, if so; it is then as it is stored.
    pub problem: Option<Str>,
}

/// A stored value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    pub key: Str,
    pub value: Bytes,
    pub create_revision: u64,
    pub mod_revision: u64,
    /// When the key goes away by itself (Unix milliseconds), where the backend knows.
    pub expires_ms: Option<u64>,
    /// Why the value cannot be read (there is no key to decrypt it with), if so; it is then as it is
    /// stored. One such value is no reason to keep the others back.
    pub problem: Option<Str>,
}

/// What a write asks for.
#[derive(Debug, Clone)]
pub struct Write {
    pub key: Str,
    pub expect: Expect,
    /// The new value, `None` to delete.
    pub value: Option<Bytes>,
    /// After this long the key is deleted, as if someone had done so.
    pub ttl: Option<Duration>,
}

/// Which state of the key a write builds on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// The key must not exist.
    Absent,
    /// The key must have been modified last at this revision.
    At(u64),
    /// Whatever is there.
    Any,
}

impl Write {
    pub fn create(key: impl Into<Str>, value: impl Into<Bytes>) -> Self {
        Self::put(key, Expect::Absent, value)
    }

    pub fn update(key: impl Into<Str>, at: u64, value: impl Into<Bytes>) -> Self {
        Self::put(key, Expect::At(at), value)
    }

    pub fn put(key: impl Into<Str>, expect: Expect, value: impl Into<Bytes>) -> Self {
        Self { key: key.into(), expect, value: Some(value.into()), ttl: None }
    }

    pub fn delete(key: impl Into<Str>, expect: Expect) -> Self {
        Self { key: key.into(), expect, value: None, ttl: None }
    }

    #[must_use]
    pub fn with_ttl(mut self, ttl: Option<Duration>) -> Self {
        self.ttl = ttl;
        self
    }

    /// Refuses what etcd refuses, so that an object does not outgrow a later move to etcd.
    pub fn check_size(&self) -> Result<(), StoreError> {
        let bytes = self.key.len() + self.value.as_ref().map_or(0, Bytes::len);
        if bytes > REQUEST_BYTES_MAX { Err(StoreError::TooLarge { bytes }) } else { Ok(()) }
    }
}

/// etcd's default `--max-request-bytes`.
pub const REQUEST_BYTES_MAX: usize = 1_572_864;

impl Expect {
    /// Whether a key that was modified last at `current` (`None`: absent) is as expected.
    pub fn holds(self, current: Option<u64>) -> bool {
        match self {
            Self::Absent => current.is_none(),
            Self::At(revision) => current == Some(revision),
            Self::Any => true,
        }
    }
}

/// Which keys to read: those under `prefix`, behind `after`, as they were at `revision`.
#[derive(Debug, Clone, Default)]
pub struct Range {
    pub prefix: Str,
    /// Only keys greater than this one.
    pub after: Option<Str>,
    /// `None` reads the newest state.
    pub revision: Option<u64>,
    /// At most so many keys, 0 for all.
    pub limit: usize,
}

impl Range {
    pub fn of(prefix: impl Into<Str>) -> Self {
        Self { prefix: prefix.into(), ..Self::default() }
    }

    #[must_use]
    pub fn after(mut self, key: impl Into<Str>) -> Self {
        self.after = Some(key.into());
        self
    }

    #[must_use]
    pub fn at(mut self, revision: u64) -> Self {
        self.revision = Some(revision);
        self
    }

    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }
}

/// What a range holds.
#[derive(Debug, Clone, Default)]
pub struct RangeResult {
    pub items: Vec<KeyValue>,
    /// The revision whose state the items show.
    pub revision: u64,
    /// Whether the limit cut the range short.
    pub more: bool,
    /// How many keys of the range follow behind the items.
    pub remaining: u64,
}

/// What can go wrong in a store, in the store's words; the registry makes API errors of them.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The key is not at the expected revision; `current` is what is there instead.
    #[error("the key was changed by someone else")]
    Conflict { current: Option<KeyValue> },
    /// The backend no longer has this revision; `oldest` is the first that can be read.
    #[error("etcdserver: mvcc: required revision has been compacted")]
    Compacted { oldest: u64 },
    /// The backend has not come to this revision yet.
    #[error("etcdserver: mvcc: required revision is a future revision")]
    Future { asked: u64, current: u64 },
    /// The cache did not reach the revision in time.
    #[error("Too large resource version: {asked}, current: {current}")]
    TooLargeRevision { asked: u64, current: u64 },
    /// The cache no longer has the events behind the revision that was asked for; `oldest` is the
    /// first from which a watch can start.
    #[error("too old resource version (oldest is {oldest})")]
    Expired { oldest: u64 },
    #[error("etcdserver: request is too large")]
    TooLarge { bytes: usize },
    /// The store cannot answer now; asking again may help.
    #[error("{0}")]
    Unavailable(String),
    /// Stored bytes are not what was written.
    #[error("storage is corrupt: {0}")]
    Corrupt(String),
    /// There is nothing (no key) to read the value of a key with, or to write it.
    #[error("unable to transform key {}: {why}", meta::field::quote(key))]
    Unreadable { key: Str, why: String },
    /// There is no room for the write; reads go on.
    #[error("{0}")]
    Full(String),
}
