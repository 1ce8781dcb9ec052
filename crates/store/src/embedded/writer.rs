//! The writer thread (group commit). All waiting writes are checked, appended and synced together;
//! then they become visible to readers and watches; then the callers are answered.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use meta::Str;
use tokio::sync::oneshot;

use super::hint::HintBuilder;
use super::index::{SegmentUsage, StoredVersion, Version};
use super::reclaim::Reclaim;
use super::record::{RecordHeader, RecordKind};
use super::segment::{HEADER_BYTES, Segment, SegmentHeader};
use super::{Store, Tuning};
use crate::failpoint::failpoint;
use crate::{Change, Expect, KeyValue, StoreError, Write};

/// A request to the writer thread.
pub(crate) enum Request {
    Write(Write, Reply),
    Compact(u64, oneshot::Sender<Result<(), StoreError>>),
    Stop,
}

/// Receives the result of a write.
pub(crate) type Reply = oneshot::Sender<Result<u64, WriteError>>;

/// Why a write was not done.
pub(crate) enum WriteError {
    /// The precondition failed; this is the current value. The caller reads it from disk.
    Conflict(Option<CurrentValue>),
    Error(StoreError),
}

pub(crate) enum CurrentValue {
    Stored(StoredVersion),
    /// Written in the same batch.
    Pending(KeyValue),
}

pub(crate) struct Writer {
    pub(super) store: Arc<Store>,
    pub(super) tuning: Tuning,
    requests: Receiver<Request>,
    pub(super) active: Arc<Segment>,
    hint: HintBuilder,
    /// Where the next record goes, and the end of the allocated space.
    end: u64,
    allocated: u64,
    /// (Unix milliseconds, revision, key), the next one first.
    expirations: BTreeSet<(u64, u64, Str)>,
    /// When to compact next, and up to which revision.
    compact_due: Option<(Instant, u64)>,
    pub(super) reclaim: Option<Reclaim>,
    /// A reclaimed segment whose file could not be deleted yet.
    pub(super) pending_deletion: Option<u64>,
    /// Set when the content of the disk is unknown. No further writes are accepted.
    write_fault: Option<String>,
}

/// The accepted writes of one batch, before they are durable.
#[derive(Default)]
struct PendingBatch {
    bytes: Vec<u8>,
    accepted: Vec<AcceptedWrite>,
    /// The newest accepted write of each key.
    newest: HashMap<Str, usize>,
    rejected: Vec<(Reply, Option<CurrentValue>)>,
}

struct AcceptedWrite {
    header: RecordHeader,
    value: Option<Bytes>,
    /// Offset of the record in the batch, and its padded length.
    at: u32,
    len: u32,
    reply: Option<Reply>,
}

/// The size of a batch.
const BATCH_BYTES_MAX: usize = 4 << 20;
const BATCH_WRITES_MAX: usize = 2048;
/// A clock that is set forward is noticed after this time.
const CLOCK_CHECK: Duration = Duration::from_mins(1);

impl Writer {
    pub(crate) fn new(
        store: Arc<Store>,
        tuning: Tuning,
        requests: Receiver<Request>,
        active: Arc<Segment>,
        hint: HintBuilder,
        allocated: u64,
        expirations: Vec<(u64, u64, Str)>,
    ) -> Self {
        let (end, revision) = {
            let index = store.index.read();
            let end = index.segments.get(&active.number).map_or(HEADER_BYTES as u64, |s| s.bytes);
            (end, index.revision)
        };
        let compact_due = tuning.compact_every.map(|every| (Instant::now() + every, revision));
        Self {
            store,
            tuning,
            requests,
            active,
            hint,
            end,
            allocated: allocated.max(end),
            expirations: expirations.into_iter().collect(),
            compact_due,
            reclaim: None,
            pending_deletion: None,
            write_fault: None,
        }
    }

    /// Runs until it is stopped or all senders are dropped.
    pub(crate) fn run(mut self) {
        self.start_reclaim();
        loop {
            let mut writes = Vec::new();
            let mut bytes = 0;
            let mut next = self.wait();
            let mut stop = false;
            while let Some(request) = next {
                match request {
                    Request::Write(write, reply) => {
                        bytes += write.value.as_ref().map_or(0, Bytes::len);
                        writes.push((write, Some(reply)));
                    }
                    Request::Compact(revision, reply) => {
                        self.commit(std::mem::take(&mut writes));
                        let _ = reply.send(self.compact(revision));
                    }
                    Request::Stop => stop = true,
                }
                if bytes > BATCH_BYTES_MAX || writes.len() >= BATCH_WRITES_MAX || stop {
                    break;
                }
                next = match self.requests.try_recv() {
                    Ok(request) => Some(request),
                    Err(TryRecvError::Empty) => None,
                    Err(TryRecvError::Disconnected) => Some(Request::Stop),
                };
            }
            self.commit(writes);
            if stop {
                return;
            }
            self.expire();
            self.compact_when_due();
            self.reclaim_step();
        }
    }

    /// The next request, or `None` when something else is due first.
    fn wait(&self) -> Option<Request> {
        let mut until = None;
        let mut at_most = |wait: Duration| {
            until = Some(until.map_or(wait, |have: Duration| have.min(wait)));
        };
        if let Some((at, ..)) = self.expirations.first() {
            let ms = at.saturating_sub(self.tuning.now_ms());
            at_most(Duration::from_millis(ms).min(CLOCK_CHECK));
        }
        if let Some((at, _)) = self.compact_due {
            at_most(at.saturating_duration_since(Instant::now()));
        }
        if self.reclaim.is_some() {
            at_most(Duration::ZERO);
        }
        let Some(until) = until else {
            return Some(self.requests.recv().unwrap_or(Request::Stop));
        };
        match self.requests.recv_timeout(until) {
            Ok(request) => Some(request),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Request::Stop),
        }
    }

    /// Checks the writes in the order of their arrival and makes the accepted ones durable.
    fn commit(&mut self, writes: Vec<(Write, Option<Reply>)>) {
        if writes.is_empty() {
            return;
        }
        let pending = self.stage(writes);
        match self.append(&pending.bytes) {
            Ok(offset) => self.publish(pending, offset),
            Err(error) => {
                let accepted = pending.accepted.into_iter().filter_map(|done| done.reply);
                // A rejected write may have been rejected because of one that now has failed.
                let rejected = pending.rejected.into_iter().map(|(reply, _)| reply);
                for reply in accepted.chain(rejected) {
                    let _ = reply.send(Err(WriteError::Error(error.clone())));
                }
            }
        }
    }

    fn stage(&self, writes: Vec<(Write, Option<Reply>)>) -> PendingBatch {
        let mut pending = PendingBatch::default();
        // Only this thread changes the index, so it stays as it is until the batch is published.
        let index = self.store.index.read();
        let mut revision = index.revision;
        for (write, reply) in writes {
            let fresh = pending.newest.get(&write.key).map(|n| &pending.accepted[*n]);
            let stored = if fresh.is_none() { index.newest(&write.key) } else { None };
            let current = match fresh {
                Some(fresh) => {
                    let exists = fresh.value.is_some();
                    exists.then_some((fresh.header.revision, fresh.header.create_revision))
                }
                None => stored.map(|version| (version.revision, version.create_revision)),
            };
            let absent = write.value.is_none() && current.is_none();
            if absent || !write.expect.holds(current.map(|(revision, _)| revision)) {
                let current = match (fresh, stored) {
                    (Some(fresh), _) => fresh.key_value().map(CurrentValue::Pending),
                    (None, Some(version)) => {
                        index.locate(write.key, version).ok().map(CurrentValue::Stored)
                    }
                    (None, None) => None,
                };
                pending.rejected.extend(reply.map(|reply| (reply, current)));
                continue;
            }
            revision += 1;
            let create_revision = current.map_or(revision, |(_, created)| created);
            let expires = write.ttl.map(|ttl| self.tuning.now_ms() + ttl.as_millis() as u64);
            let header = RecordHeader {
                kind: if write.value.is_some() { RecordKind::Put } else { RecordKind::Delete },
                revision,
                create_revision,
                expires_ms: expires.filter(|_| write.value.is_some()).unwrap_or(0),
                superseded: 0,
                key: write.key.clone(),
            };
            let at = pending.bytes.len() as u32;
            let len = header.encode(write.value.as_deref().unwrap_or_default(), &mut pending.bytes);
            pending.newest.insert(write.key, pending.accepted.len());
            pending.accepted.push(AcceptedWrite { header, value: write.value, at, len, reply });
        }
        pending
    }

    /// Makes the batch visible to readers, watches and callers, in this order.
    fn publish(&mut self, pending: PendingBatch, offset: u64) {
        let mut changes = Vec::with_capacity(pending.accepted.len());
        let mut replies = Vec::with_capacity(pending.accepted.len());
        let watchers = self.store.watchers.lock();
        let mut index = self.store.index.write();
        for done in pending.accepted {
            let AcceptedWrite { header, value, at, len, reply } = done;
            let place = (offset + u64::from(at)) as u32;
            self.hint.add(&header, place, len);
            if let Some(expires) = header.expires() {
                self.expirations.insert((expires, header.revision, header.key.clone()));
            }
            let version = Version::of(&header, self.active.number, place, len);
            index.append(header.key.clone(), version);
            let (revision, create_revision) = (header.revision, header.create_revision);
            changes.push(Change {
                key: header.key,
                revision,
                create_revision,
                value,
                problem: None,
            });
            replies.extend(reply.map(|reply| (reply, revision)));
        }
        self.update_segment_end(&mut index);
        let revision = index.revision;
        drop(index);
        failpoint!("publish.indexed");
        watchers.push(&changes);
        self.store.published.store(revision, Ordering::Release);
        drop(watchers);
        failpoint!("publish.notified");
        for (reply, revision) in replies {
            let _ = reply.send(Ok(revision));
        }
        for (reply, current) in pending.rejected {
            let _ = reply.send(Err(WriteError::Conflict(current)));
        }
    }

    fn update_segment_end(&self, index: &mut super::index::Index) {
        if let Some(used) = index.segments.get_mut(&self.active.number) {
            used.bytes = self.end;
        }
    }

    /// Deletes keys whose TTL has passed.
    fn expire(&mut self) {
        let now = self.tuning.now_ms();
        let mut due = Vec::new();
        while due.len() < BATCH_WRITES_MAX
            && let Some(next) = self.expirations.first()
            && next.0 <= now
        {
            due.extend(self.expirations.pop_first());
        }
        if due.is_empty() {
            return;
        }
        // A key that was changed since has a new expiry.
        let delete = |(_, revision, key): &(u64, u64, Str)| {
            (Write::delete(key.clone(), Expect::At(*revision)), None)
        };
        self.commit(due.iter().map(delete).collect());
        let index = self.store.index.read();
        for (_, revision, key) in due {
            // The write may have failed.
            if index.newest(&key).is_some_and(|version| version.revision == revision) {
                self.expirations.insert((now + EXPIRE_RETRY_MS, revision, key));
            }
        }
    }

    fn compact_when_due(&mut self) {
        let (revision, history) = {
            let index = self.store.index.read();
            (index.revision, index.history_len())
        };
        let mut to = None;
        if history > self.tuning.history_max {
            to = Some(revision - (self.tuning.history_max / 2) as u64);
        }
        if let (Some((at, due_to)), Some(every)) = (self.compact_due, self.tuning.compact_every)
            && Instant::now() >= at
        {
            to = to.max(Some(due_to));
            self.compact_due = Some((Instant::now() + every, revision));
        }
        if let Some(to) = to
            && let Err(error) = self.compact(to)
        {
            tracing::warn!(%error, "history could not be compacted");
        }
    }

    fn compact(&mut self, revision: u64) -> Result<(), StoreError> {
        {
            let index = self.store.index.read();
            if revision > index.revision {
                return Err(StoreError::Future { asked: revision, current: index.revision });
            }
            if revision <= index.compacted {
                return Ok(());
            }
        }
        // Durable first: segments are deleted because of it.
        let header = RecordHeader {
            kind: RecordKind::Compact,
            revision,
            create_revision: 0,
            expires_ms: 0,
            superseded: 0,
            key: Str::default(),
        };
        let mut bytes = Vec::new();
        let len = header.encode(&[], &mut bytes);
        let offset = self.append(&bytes)?;
        failpoint!("compact.logged");
        self.hint.add(&header, offset as u32, len);
        {
            let mut index = self.store.index.write();
            self.update_segment_end(&mut index);
            index.compacted = revision;
        }
        // In steps, so that readers are not blocked for long.
        while self.store.index.write().prune(PRUNE_STEPS) {}
        self.start_reclaim();
        Ok(())
    }

    /// Appends bytes to the log and syncs them. Returns their offset in the active segment.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<u64, StoreError> {
        if bytes.is_empty() {
            return Ok(self.end);
        }
        if let Some(reason) = &self.write_fault {
            return Err(StoreError::Unavailable(format!(
                "the store is read-only until the server is restarted: {reason}"
            )));
        }
        let len = bytes.len() as u64;
        if self.end + len > self.tuning.segment_bytes && self.end > HEADER_BYTES as u64 {
            self.next_segment().map_err(|error| append_error(&error))?;
        }
        self.preallocate(self.end + len).map_err(|error| append_error(&error))?;
        failpoint!("log.allocated");
        let file = self.active.file();
        if let Err(error) = file.write_at(bytes, self.end) {
            // The next recovery must not find any of it, so it is overwritten with zeros.
            let wiped = file.write_at(&vec![0; bytes.len()], self.end).and_then(|()| file.sync());
            if let Err(wiping) = wiped {
                self.write_fault = Some(wiping.to_string());
            }
            return Err(append_error(&error));
        }
        failpoint!("log.written");
        if let Err(error) = file.sync() {
            // After a failed sync the content of the disk is unknown, and another sync would not
            // tell.
            tracing::error!(%error, "the log could not be synced; no further writes are accepted");
            self.write_fault = Some(format!("syncing the log failed: {error}"));
            return Err(StoreError::Unavailable(format!("syncing the log failed: {error}")));
        }
        failpoint!("log.synced");
        let offset = self.end;
        self.end += len;
        Ok(offset)
    }

    /// Writes zeros ahead of the records. Overwriting them later does not change the size and
    /// layout of the file, which makes a sync much cheaper; and a full disk is noticed here, where
    /// nothing is lost.
    fn preallocate(&mut self, end: u64) -> io::Result<()> {
        if end <= self.allocated {
            return Ok(());
        }
        let ahead = self.allocated.clamp(PREALLOCATE_BYTES_MIN, PREALLOCATE_BYTES_MAX);
        let to = (end + ahead).next_multiple_of(4096).min(self.tuning.segment_bytes).max(end);
        let zeros = vec![0; (to - self.allocated) as usize];
        self.active.file().write_at(&zeros, self.allocated)?;
        self.allocated = to;
        Ok(())
    }

    fn next_segment(&mut self) -> io::Result<()> {
        let (revision, compacted) = {
            let index = self.store.index.read();
            (index.revision, index.compacted)
        };
        let number = self.active.number + 1;
        let header = SegmentHeader { number, revision, compacted };
        let segment = Arc::new(Segment::create(&*self.store.disk, header)?);
        failpoint!("segment.created");
        let done = std::mem::replace(&mut self.active, Arc::clone(&segment));
        let hint = std::mem::take(&mut self.hint);
        if let Err(error) = hint.write(&*self.store.disk, done.number, self.end) {
            tracing::warn!(%error, "the hint file of a segment could not be written");
        }
        failpoint!("segment.hinted");
        self.end = HEADER_BYTES as u64;
        self.allocated = self.end;
        let used = SegmentUsage { segment, bytes: self.end, live: 0, newest: revision };
        self.store.index.write().segments.insert(number, used);
        Ok(())
    }

    pub(super) fn hint(&mut self) -> &mut HintBuilder {
        &mut self.hint
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }
}

const PREALLOCATE_BYTES_MIN: u64 = 64 << 10;
const PREALLOCATE_BYTES_MAX: u64 = 1 << 20;
const PRUNE_STEPS: usize = 4096;
const EXPIRE_RETRY_MS: u64 = 10_000;

impl AcceptedWrite {
    fn key_value(&self) -> Option<KeyValue> {
        Some(KeyValue {
            key: self.header.key.clone(),
            value: self.value.clone()?,
            create_revision: self.header.create_revision,
            mod_revision: self.header.revision,
            expires_ms: self.header.expires(),
            problem: None,
        })
    }
}

/// The error of a write that did not take effect.
fn append_error(error: &io::Error) -> StoreError {
    let full = matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    );
    if full {
        // Compat: etcd's message, which clients and operators search for.
        StoreError::Full(format!("etcdserver: mvcc: database space exceeded: {error}"))
    } else {
        StoreError::Unavailable(format!("writing the log failed: {error}"))
    }
}
