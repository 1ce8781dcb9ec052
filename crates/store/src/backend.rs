//! The storage interface: an MVCC key-value store, as etcd's.
//!
//! There is one revision counter for the whole store; each write gets the next number. A write
//! names the revision at which it expects its key (compare-and-swap), so concurrent writers do not
//! overwrite each other. Old revisions can be read and watched from until they are compacted.

use std::time::Duration;

use bytes::Bytes;
use meta::Str;

pub use meta::BoxFuture;

/// An MVCC key-value store.
pub trait Backend: Send + Sync + 'static {
    /// The newest value of a key; sees every write acknowledged before the call.
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<KeyValue>, StoreError>>;

    /// The keys of a range in order, now or at a revision.
    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult, StoreError>>;

    /// Writes one key if it is at the expected revision, and returns the revision of the write. The
    /// write is durable when this resolves. Deleting an absent key is a `Conflict` without a
    /// current value, whatever was expected.
    fn write(&self, write: Write) -> BoxFuture<'_, Result<u64, StoreError>>;

    /// The newest committed revision; not older than any acknowledged write.
    fn revision(&self) -> BoxFuture<'_, Result<u64, StoreError>>;

    /// Drops what was overwritten or deleted up to `revision`: afterwards ranges below it and
    /// watches from before it fail with `Compacted`. Idempotent.
    fn compact(&self, revision: u64) -> BoxFuture<'_, Result<(), StoreError>>;

    /// The oldest revision whose state can still be read, as far as this server knows; 0: it does not.
    /// Compaction by another server may be learned of late.
    fn oldest_revision(&self) -> u64 {
        0
    }

    /// Every change of a key under `prefix` with a revision above `after`, in order.
    fn watch(&self, prefix: &str, after: u64) -> BoxFuture<'_, Result<WatchStream, StoreError>>;

    /// Whether a key's newest value should be written again although it does not change, because a
    /// write now would store it in another form (encrypted with another key).
    fn is_stale(&self, key: &str) -> BoxFuture<'_, Result<bool, StoreError>> {
        let _ = key;
        Box::pin(std::future::ready(Ok(false)))
    }
}

/// A watch in progress.
pub trait Watch: Send {
    /// The next changes, or progress alone. Cancel-safe. After an error the watch is over;
    /// `Compacted` means that changes were lost.
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, StoreError>>;

    /// Asks for a batch soon, even an empty one, so that the watch of a quiet prefix learns the
    /// newest revision.
    fn request_progress(&mut self);
}

/// A watch as returned by a backend.
pub type WatchStream = Box<dyn Watch>;

/// Changes in the order of their revisions, and the progress of the watch.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// What changed; empty when the batch only reports progress.
    pub changes: Vec<Change>,
    /// Every change of the prefix up to this revision has been delivered.
    pub revision: u64,
}

/// One write as a watch sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub key: Str,
    /// The revision of this write.
    pub revision: u64,
    /// The create revision of the key; 0 for a deletion where the backend does not report it (etcd
    /// would have to send the previous value along).
    pub create_revision: u64,
    /// The new value, `None` when the key was deleted.
    pub value: Option<Bytes>,
    /// Why the value cannot be decrypted, if so; `value` is then as stored.
    pub problem: Option<Str>,
}

/// A stored value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    pub key: Str,
    pub value: Bytes,
    pub create_revision: u64,
    pub mod_revision: u64,
    /// When the key expires (Unix milliseconds), where the backend knows.
    pub expires_ms: Option<u64>,
    /// Why the value cannot be decrypted, if so; `value` is then as stored. One such value does not
    /// make the others unreadable.
    pub problem: Option<Str>,
}

/// A put or delete of one key.
#[derive(Debug, Clone)]
pub struct Write {
    pub key: Str,
    pub expect: Expect,
    /// The new value, `None` to delete.
    pub value: Option<Bytes>,
    /// After this time the key is deleted, as if by a client.
    pub ttl: Option<Duration>,
}

/// The precondition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// The key must not exist.
    Absent,
    /// The key must have been modified last at this revision.
    At(u64),
    /// No precondition.
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

    /// Rejects what etcd would reject, so that the data can be moved to etcd later.
    pub fn check_size(&self) -> Result<(), StoreError> {
        let bytes = self.key.len() + self.value.as_ref().map_or(0, Bytes::len);
        if bytes > REQUEST_BYTES_MAX { Err(StoreError::TooLarge { bytes }) } else { Ok(()) }
    }
}

/// etcd's default `--max-request-bytes`.
pub const REQUEST_BYTES_MAX: usize = 1_572_864;

impl Expect {
    /// Whether the precondition holds for a key whose mod revision is `current` (`None`: absent).
    pub fn holds(self, current: Option<u64>) -> bool {
        match self {
            Self::Absent => current.is_none(),
            Self::At(revision) => current == Some(revision),
            Self::Any => true,
        }
    }
}

/// Which keys to read: those under `prefix`, after `after`, as of `revision`.
#[derive(Debug, Clone, Default)]
pub struct Range {
    pub prefix: Str,
    /// Only keys greater than this one.
    pub after: Option<Str>,
    /// `None` reads the newest state.
    pub revision: Option<u64>,
    /// At most this many keys, 0 for all.
    pub limit: usize,
    /// The caller does not need [`RangeResult::remaining`]: whoever reads a large resource page by page would have the
    /// backend count the rest of it with every page.
    pub uncounted: bool,
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

    #[must_use]
    pub fn uncounted(mut self) -> Self {
        self.uncounted = true;
        self
    }
}

/// The result of a range read.
#[derive(Debug, Clone, Default)]
pub struct RangeResult {
    pub items: Vec<KeyValue>,
    /// The revision whose state the items show.
    pub revision: u64,
    /// Whether the limit truncated the range.
    pub more: bool,
    /// How many keys of the range follow after the items; of an uncounted range any number above 0, if there are more.
    pub remaining: u64,
}

/// Errors of a store. The registry maps them to API errors.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The key is not at the expected revision; `current` is what is there instead.
    #[error("the key was modified concurrently")]
    Conflict { current: Option<KeyValue> },
    /// The backend no longer has this revision; `oldest` is the first that can be read.
    #[error("etcdserver: mvcc: required revision has been compacted")]
    Compacted { oldest: u64 },
    /// The backend has not reached this revision yet.
    #[error("etcdserver: mvcc: required revision is a future revision")]
    Future { asked: u64, current: u64 },
    /// The cache did not reach the revision in time.
    #[error("Too large resource version: {asked}, current: {current}")]
    TooLargeRevision { asked: u64, current: u64 },
    /// The cache no longer has the events after the requested revision; `oldest` is the first from
    /// which a watch can start.
    #[error("too old resource version (oldest is {oldest})")]
    Expired { oldest: u64 },
    #[error("etcdserver: request is too large")]
    TooLarge { bytes: usize },
    /// The store is unavailable; a retry may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// Stored bytes are not what was written.
    #[error("storage is corrupt: {0}")]
    Corrupt(String),
    /// The value of a key cannot be decrypted or encrypted, because a provider or a key is missing.
    #[error("unable to transform key {}: {why}", meta::field::quote(key))]
    Unreadable { key: Str, why: String },
    /// The disk is full, or the quota is exhausted; reads go on.
    #[error("{0}")]
    Full(String),
}
