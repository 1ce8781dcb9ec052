//! The embedded store: a log on disk, an index of it in memory.
//!
//! Every write is appended and synced before it is acknowledged; writes that wait together share
//! one sync (group commit). The log is also the history, so old revisions can be read and watched
//! from, also after a restart, until they are compacted. `docs/storage-format.md` describes the
//! format.

pub mod backup;
mod disk;
#[doc(hidden)]
pub mod fuzzing;
mod hint;
mod import;
mod index;
mod memory_disk;
mod reclaim;
mod record;
mod recover;
mod segment;
mod watch;
mod writer;

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;
use tokio::sync::watch as watch_channel;

pub use self::import::Import;

use self::disk::{Disk, RealDisk};
use self::index::{Index, StoredVersion, Version};
use self::memory_disk::MemoryDisk;
use self::record::RecordHeader;
use self::segment::Segment;
use self::watch::{EmbeddedWatch, WatcherGroup};
use self::writer::{CurrentValue, Request, WriteError, Writer};
use crate::{Backend, BoxFuture, KeyValue, Range, RangeResult, StoreError, WatchStream, Write};

/// Where the store is, and how often it compacts.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// A directory for the store alone; created if it is missing.
    pub dir: PathBuf,
    /// How long history is kept at least (and twice as long at most); `None` keeps it until
    /// `compact` is called.
    pub compact_every: Option<Duration>,
}

impl EmbeddedOptions {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        // Compat: kube-apiserver's `--etcd-compaction-interval`.
        Self { dir: dir.into(), compact_every: Some(Duration::from_mins(5)) }
    }
}

/// The embedded backend. Dropping it finishes the pending writes and unlocks the directory.
pub struct Embedded {
    store: Arc<Store>,
    requests: SyncSender<Request>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// True when the writer thread has ended as it should; without a sender, it has ended.
    writer_ended: watch_channel::Receiver<bool>,
    /// Held while the store is open.
    lock: Option<File>,
}

/// Shared by the writer thread, readers and watches.
pub(crate) struct Store {
    disk: Box<dyn Disk>,
    index: RwLock<Index>,
    /// Lock order: this one, then `index`.
    watchers: Mutex<WatcherGroup>,
    /// Everything up to this revision is in the queues of the watchers.
    published: AtomicU64,
}

/// Parameters that tests change.
#[derive(Clone)]
pub(crate) struct Tuning {
    compact_every: Option<Duration>,
    segment_bytes: u64,
    /// Compaction is not delayed when there is more history than this.
    history_max: usize,
    clock: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl Tuning {
    fn new(compact_every: Option<Duration>) -> Self {
        let clock = || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            since.as_millis() as u64
        };
        Self {
            compact_every,
            segment_bytes: 16 << 20,
            history_max: 1 << 20,
            clock: Arc::new(clock),
        }
    }

    /// Unix milliseconds.
    fn now_ms(&self) -> u64 {
        (self.clock)()
    }
}

/// A segment in memory is garbage for as long as one record in it is needed, so it is small.
const MEMORY_SEGMENT_BYTES: u64 = 1 << 20;
/// Writes that may wait for the writer thread; far more than the server admits at once.
const REQUESTS_MAX: usize = 8192;

impl Embedded {
    /// Opens or creates a store in a directory. Reads the log, so it blocks.
    pub fn open(options: &EmbeddedOptions) -> Result<Self, StoreError> {
        let failed = |error: std::io::Error| {
            let dir = options.dir.display();
            StoreError::Unavailable(format!("cannot open the data directory {dir}: {error}"))
        };
        make_private(&options.dir).map_err(failed)?;
        let lock = lock(&options.dir)?;
        let disk = RealDisk { dir: options.dir.clone() };
        let mut embedded = Self::start(Box::new(disk), Tuning::new(options.compact_every))?;
        embedded.lock = Some(lock);
        Ok(embedded)
    }

    /// An empty store that has no files and ends with its last reference. The log is kept in
    /// memory, so history, compaction, TTLs and watches are those of the store on disk.
    pub fn in_memory(compact_every: Option<Duration>) -> Result<Self, StoreError> {
        let tuning = Tuning { segment_bytes: MEMORY_SEGMENT_BYTES, ..Tuning::new(compact_every) };
        Self::start(Box::new(MemoryDisk), tuning)
    }

    fn start(disk: Box<dyn Disk>, tuning: Tuning) -> Result<Self, StoreError> {
        let recovered = recover::recover(&*disk)?;
        let allocated = recovered.make_durable(&*disk)?;
        let published = AtomicU64::new(recovered.index.revision);
        let index = RwLock::new(recovered.index);
        let store = Arc::new(Store { disk, index, watchers: Mutex::default(), published });
        let (requests, received) = sync_channel(REQUESTS_MAX);
        let writer = Writer::new(
            Arc::clone(&store),
            tuning,
            received,
            recovered.active,
            recovered.hint,
            allocated,
            recovered.expirations,
        );
        let (ended, writer_ended) = watch_channel::channel(false);
        let run = move || {
            writer.run();
            ended.send_replace(true);
        };
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(run)
            .map_err(|error| StoreError::Unavailable(format!("cannot start a thread: {error}")))?;
        let writer = Mutex::new(Some(thread));
        Ok(Self { store, requests, writer, writer_ended, lock: None })
    }

    /// Finishes the pending writes, ends all watches and unlocks the directory.
    pub fn close(&self) {
        let Some(thread) = self.writer.lock().take() else { return };
        // If the writer thread has ended already, there is nothing left to finish.
        let _ = self.requests.send(Request::Stop);
        let _ = thread.join();
        self.store.watchers.lock().close();
        if let Some(lock) = &self.lock {
            let _ = lock.unlock();
        }
    }

    /// Waits for the end of the writer thread. False: it has panicked, and no write will succeed until
    /// the store is opened again.
    pub fn writer_ended(&self) -> impl Future<Output = bool> + Send + 'static {
        let mut ended = self.writer_ended.clone();
        async move { ended.wait_for(|ended| *ended).await.is_ok() }
    }

    /// Bytes of the log on disk, and how many of them are live.
    pub fn usage(&self) -> (u64, u64) {
        self.store.index.read().usage()
    }

    fn ask(&self, request: Request) -> Result<(), StoreError> {
        self.requests.try_send(request).map_err(|error| {
            StoreError::Unavailable(match error {
                TrySendError::Full(_) => "etcdserver: too many requests".into(),
                TrySendError::Disconnected(_) => CLOSED.into(),
            })
        })
    }
}

const CLOSED: &str = "the store is closed";
/// Up to this many values are read (mostly from the page cache) without a blocking task.
const INLINE_READS: usize = 64;

impl Drop for Embedded {
    fn drop(&mut self) {
        self.close();
    }
}

/// Creates a directory that only its owner can access.
fn make_private(dir: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Ensures that no other process uses the directory.
fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join("LOCK");
    let failed = |error: std::io::Error| {
        StoreError::Unavailable(format!("cannot lock {}: {error}", path.display()))
    };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            // For the message only.
            let _ = (&mut file).take(20).read_to_string(&mut pid);
            let by = if pid.trim().is_empty() {
                String::new()
            } else {
                format!(" (process {})", pid.trim())
            };
            return Err(StoreError::Unavailable(format!(
                "the data directory {} is in use by another server{by}",
                dir.display()
            )));
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    file.set_len(0).map_err(failed)?;
    file.rewind().map_err(failed)?;
    writeln!(file, "{}", std::process::id()).map_err(failed)?;
    Ok(file)
}

impl Backend for Embedded {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<KeyValue>, StoreError>> {
        let found = {
            let index = self.store.index.read();
            index.newest(key).map(|version| index.locate(key.into(), version)).transpose()
        };
        // One read, mostly from the page cache: not worth a blocking task.
        Box::pin(async move { found?.map(key_value).transpose() })
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult, StoreError>> {
        Box::pin(async move {
            let (found, revision, remaining) = self.store.index.read().range(&range)?;
            let read = |found: Vec<StoredVersion>| {
                found.into_iter().map(key_value).collect::<Result<Vec<_>, _>>()
            };
            let items = if found.len() <= INLINE_READS {
                read(found)?
            } else {
                // Long enough to block a worker thread.
                let reading = tokio::task::spawn_blocking(move || read(found));
                reading.await.map_err(|error| StoreError::Unavailable(error.to_string()))??
            };
            Ok(RangeResult { items, revision, more: remaining > 0, remaining })
        })
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<u64, StoreError>> {
        Box::pin(async move {
            write.check_size()?;
            if write.key.len() > record::KEY_BYTES_MAX {
                return Err(StoreError::TooLarge { bytes: write.key.len() });
            }
            let (reply, answer) = oneshot::channel();
            self.ask(Request::Write(write, reply))?;
            match answer.await {
                Ok(Ok(revision)) => Ok(revision),
                Ok(Err(WriteError::Error(error))) => Err(error),
                Ok(Err(WriteError::Conflict(current))) => {
                    let current = match current {
                        Some(CurrentValue::Stored(found)) => Some(key_value(found)?),
                        Some(CurrentValue::Pending(current)) => Some(current),
                        None => None,
                    };
                    Err(StoreError::Conflict { current })
                }
                Err(_) => Err(StoreError::Unavailable(CLOSED.into())),
            }
        })
    }

    fn revision(&self) -> BoxFuture<'_, Result<u64, StoreError>> {
        // Not the index's revision, which is ahead for a moment: a cache that requests progress
        // just then would not learn of that revision, and a reader that waits for it would wait
        // until the next request.
        let revision = self.store.published.load(Ordering::Acquire);
        Box::pin(async move { Ok(revision) })
    }

    fn compact(&self, revision: u64) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            self.ask(Request::Compact(revision, reply))?;
            answer.await.unwrap_or_else(|_| Err(StoreError::Unavailable(CLOSED.into())))
        })
    }

    fn oldest_revision(&self) -> u64 {
        self.store.index.read().compacted
    }

    fn watch(&self, prefix: &str, after: u64) -> BoxFuture<'_, Result<WatchStream, StoreError>> {
        let watch = EmbeddedWatch::start(&self.store, prefix, after);
        Box::pin(async move { Ok(Box::new(watch?) as WatchStream) })
    }
}

/// Reads the value of a version.
fn key_value(found: StoredVersion) -> Result<KeyValue, StoreError> {
    let StoredVersion { key, version, segment } = found;
    let (header, value) = read_version(&segment, &key, version)?;
    Ok(KeyValue {
        key,
        value,
        create_revision: version.create_revision,
        mod_revision: version.revision,
        expires_ms: header.expires(),
        problem: None,
    })
}

/// Reads the record that the index refers to. The place may come from a hint file, so a record of
/// another key or revision there is an error.
fn read_version(
    segment: &Segment,
    key: &str,
    version: Version,
) -> Result<(RecordHeader, Bytes), StoreError> {
    let (header, value) = segment.read(version.offset, version.len)?;
    if header.key != key || header.revision != version.revision {
        return Err(StoreError::Corrupt(format!(
            "the record at byte {} of {} is not revision {} of {key}",
            version.offset,
            segment::file_name(segment.number),
            version.revision
        )));
    }
    Ok((header, value))
}

#[cfg(test)]
mod crash_points;
#[cfg(test)]
mod fake_disk;
#[cfg(test)]
mod format_compatibility;
#[cfg(test)]
mod tests;
