//! Watches on the embedded store. Each has a queue that the writer thread fills as it commits; a
//! watch that starts in the past, or whose queue overflowed, reads the log until it has caught up.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use meta::Str;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::index::StoredVersion;
use super::{Store, read_version};
use crate::{Batch, BoxFuture, Change, StoreError, Watch};

/// All watches.
#[derive(Default)]
pub(crate) struct WatcherGroup {
    queues: Vec<Arc<WatcherQueue>>,
}

/// The writer's side of a watch.
pub(crate) struct WatcherQueue {
    prefix: Str,
    changes: Mutex<QueuedChanges>,
    wake: Notify,
}

#[derive(Default)]
struct QueuedChanges {
    changes: Vec<Change>,
    bytes: usize,
    /// The queue overflowed and was cleared: the missing changes have to be read from the log.
    overflowed: bool,
    closed: bool,
}

/// What a queue may hold before its watch has to read the log.
const QUEUE_CHANGES_MAX: usize = 8192;
const QUEUE_BYTES_MAX: usize = 16 << 20;

impl WatcherGroup {
    /// Delivers committed changes to the watches concerned.
    pub(crate) fn push(&self, changes: &[Change]) {
        for queue in &self.queues {
            if changes.iter().any(|change| change.key.starts_with(queue.prefix.as_str())) {
                queue.push(changes);
                queue.wake.notify_one();
            }
        }
    }

    pub(crate) fn close(&self) {
        for queue in &self.queues {
            queue.changes.lock().closed = true;
            queue.wake.notify_one();
        }
    }
}

impl WatcherQueue {
    fn push(&self, changes: &[Change]) {
        let mut queue = self.changes.lock();
        if queue.overflowed {
            return;
        }
        for change in changes {
            if change.key.starts_with(self.prefix.as_str()) {
                queue.bytes += change.value.as_ref().map_or(0, bytes::Bytes::len);
                queue.changes.push(change.clone());
            }
        }
        if queue.changes.len() > QUEUE_CHANGES_MAX || queue.bytes > QUEUE_BYTES_MAX {
            *queue = QueuedChanges {
                overflowed: true,
                closed: queue.closed,
                ..QueuedChanges::default()
            };
        }
    }
}

/// The reader's side of a watch.
pub(crate) struct EmbeddedWatch {
    store: Arc<Store>,
    queue: Arc<WatcherQueue>,
    /// Everything up to here has been delivered.
    cursor: u64,
    /// Up to here the log has to be read; the queue has what follows.
    replay_to: u64,
    progress_wanted: bool,
}

impl EmbeddedWatch {
    pub(crate) fn start(store: &Arc<Store>, prefix: &str, after: u64) -> Result<Self, StoreError> {
        // Revision 1 is the empty store; nothing was ever written at it.
        let after = after.max(1);
        let queue = Arc::new(WatcherQueue {
            prefix: Str::new(prefix),
            changes: Mutex::default(),
            wake: Notify::new(),
        });
        // The writer commits under this lock: what it has published by now is in the log, the rest
        // will arrive in the queue.
        let mut watchers = store.watchers.lock();
        let compacted = store.index.read().compacted;
        if after < compacted {
            return Err(StoreError::Compacted { oldest: compacted });
        }
        watchers.queues.push(Arc::clone(&queue));
        let replay_to = store.published.load(Ordering::Acquire);
        let store = Arc::clone(store);
        Ok(Self { store, queue, cursor: after, replay_to, progress_wanted: false })
    }

    /// The next batch, if there is one already.
    fn try_next(&mut self) -> Result<Option<Batch>, StoreError> {
        if self.cursor < self.replay_to {
            return self.replay().map(Some);
        }
        // Loaded before the queue is read: what is published is in the queue by then.
        let published = self.store.published.load(Ordering::Acquire);
        let mut changes = {
            let mut queue = self.queue.changes.lock();
            if queue.overflowed {
                drop(queue);
                self.fall_back_to_log();
                return self.replay().map(Some);
            }
            if queue.closed {
                return Err(StoreError::Unavailable("the store is closed".into()));
            }
            queue.bytes = 0;
            std::mem::take(&mut queue.changes)
        };
        // A watch from a future revision, or one that has just read the log, skips some of them.
        changes.retain(|change| change.revision > self.cursor);
        if changes.is_empty() && !self.progress_wanted {
            return Ok(None);
        }
        self.progress_wanted = false;
        let last = changes.last().map_or(0, |change| change.revision);
        self.cursor = self.cursor.max(published).max(last);
        Ok(Some(Batch { changes, revision: self.cursor }))
    }

    /// Clears the queue and reads the log instead, up to the revision that is published now.
    fn fall_back_to_log(&mut self) {
        let _hub = self.store.watchers.lock();
        let mut queue = self.queue.changes.lock();
        *queue = QueuedChanges { closed: queue.closed, ..QueuedChanges::default() };
        self.replay_to = self.store.published.load(Ordering::Acquire);
    }

    fn replay(&mut self) -> Result<Batch, StoreError> {
        let steps = (self.replay_to - self.cursor).min(REPLAY_STEPS) as usize;
        let prefix = &self.queue.prefix;
        let (found, reached) = self.store.index.read().changes_after(prefix, self.cursor, steps)?;
        let changes = found.into_iter().map(change).collect::<Result<Vec<_>, _>>()?;
        self.cursor = reached;
        Ok(Batch { changes, revision: reached })
    }
}

/// How many revisions are examined at a time when reading the log.
const REPLAY_STEPS: u64 = 512;

fn change(found: StoredVersion) -> Result<Change, StoreError> {
    let StoredVersion { key, version, segment } = found;
    let value = if version.deleted { None } else { Some(read_version(&segment, &key, version)?.1) };
    let (revision, create_revision) = (version.revision, version.create_revision);
    Ok(Change { key, revision, create_revision, value, problem: None })
}

impl Watch for EmbeddedWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, StoreError>> {
        Box::pin(async move {
            loop {
                if let Some(batch) = self.try_next()? {
                    return Ok(batch);
                }
                self.queue.wake.notified().await;
            }
        })
    }

    fn request_progress(&mut self) {
        self.progress_wanted = true;
    }
}

impl Drop for EmbeddedWatch {
    fn drop(&mut self) {
        let mut watchers = self.store.watchers.lock();
        watchers.queues.retain(|have| !Arc::ptr_eq(have, &self.queue));
    }
}
