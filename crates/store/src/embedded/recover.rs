//! Recovery: reads the log into an index, and distinguishes a log that a crash has torn from one
//! that was damaged.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use meta::Str;

use super::disk::Disk;
use super::hint::{self, HintBuilder};
use super::index::{Index, SegmentUsage, Version};
use super::record::{RecordHeader, RecordKind};
use super::segment::{self, HEADER_BYTES, Segment, SegmentHeader};
use crate::StoreError;
use crate::failpoint::failpoint;

/// A recovered store.
pub(crate) struct Recovered {
    pub(crate) index: Index,
    /// The segment that is appended to, with its hint file so far.
    pub(crate) active: Arc<Segment>,
    pub(crate) hint: HintBuilder,
    /// What of the active segment may not be durable; `None` if it was created just now.
    tail: Option<Range<u64>>,
    /// Expiry (Unix milliseconds), revision and key of the keys with a TTL.
    pub(crate) expirations: Vec<(u64, u64, Str)>,
}

/// Recovers the store in a directory, or creates a new one.
pub(crate) fn recover(disk: &dyn Disk) -> Result<Recovered, StoreError> {
    let mut segments = open_segments(disk)?;
    let created = segments.is_empty();
    if created {
        // As in etcd, the empty store is at revision 1: 0 means "no revision" everywhere.
        let first = SegmentHeader { number: 1, revision: 1, compacted: 1 };
        let segment = Segment::create(disk, first).map_err(|error| {
            StoreError::Unavailable(format!("cannot create a log in the data directory: {error}"))
        })?;
        segments.push((segment, first));
    }
    let last = segments.len() - 1;
    let mut loader = Loader::new(segments[0].1.revision, segments[last].1.compacted);
    let mut active = None;
    for (n, (segment, header)) in segments.into_iter().enumerate() {
        let segment = Arc::new(segment);
        loader.begin_segment(&segment, header)?;
        let table = if n < last { hint::read(disk, segment.number) } else { None };
        let end = match table {
            Some((entries, end)) => {
                for entry in entries {
                    loader.load(&segment, entry.offset, entry.len, entry.header);
                }
                end
            }
            None => loader.scan(&segment)?,
        };
        loader.finish_segment(&segment, end);
        active = Some(segment);
    }
    let active = active.ok_or_else(|| StoreError::Corrupt("there is no log".into()))?;
    let mut recovered = loader.finish(active)?;
    if created {
        recovered.tail = None;
    }
    Ok(recovered)
}

impl Recovered {
    /// Makes the recovered log durable, which has to happen before it is served: after a process
    /// crash the last batch may be in the page cache only, and a revision that a client has read
    /// must survive a power loss. Also truncates the log after the last record if a torn batch
    /// follows, so that it cannot be taken for records later. Returns the end of the allocated space:
    /// zeros that were preallocated are kept, because a disk that is full by now may have no others.
    ///
    /// The last batch is written again and not only synced: if its first sync failed, the kernel
    /// may have marked its pages as clean without having stored them, and another sync would
    /// succeed without doing anything. Batches before it were synced before it was written.
    pub(crate) fn make_durable(&self, disk: &dyn Disk) -> Result<u64, StoreError> {
        let Some(tail) = &self.tail else { return Ok(HEADER_BYTES as u64) };
        let name = segment::file_name(self.active.number);
        let failed = |error: std::io::Error| {
            StoreError::Unavailable(format!("cannot make {name} durable: {error}"))
        };
        let file = self.active.file();
        let mut allocated = file.len().map_err(failed)?;
        if allocated < tail.end {
            // The padding of the last record is missing.
            file.set_len(tail.end).map_err(failed)?;
            allocated = tail.end;
        } else if !is_zero_behind(&self.active, tail.end)? {
            tracing::warn!(
                segment = self.active.number,
                end = tail.end,
                "discarding an incomplete write at the end of the log"
            );
            file.set_len(tail.end).map_err(failed)?;
            allocated = tail.end;
        }
        let mut bytes = vec![0; (tail.end - tail.start) as usize];
        let n = file.read_at(&mut bytes, tail.start).map_err(failed)?;
        if n < bytes.len() {
            return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
        }
        file.write_at(&bytes, tail.start).map_err(failed)?;
        failpoint!("recover.rewritten");
        file.sync().map_err(failed)?;
        // The directory entries of a new segment and of deleted ones may not be durable either.
        disk.sync().map_err(failed)?;
        Ok(allocated)
    }
}

/// Whether only preallocated zeros follow after the last record.
fn is_zero_behind(segment: &Segment, end: u64) -> Result<bool, StoreError> {
    let mut buffer = vec![0; 64 << 10];
    let mut at = end;
    loop {
        let n =
            segment.file().read_at(&mut buffer, at).map_err(|error| segment.read_error(&error))?;
        if n == 0 {
            return Ok(true);
        }
        if buffer[..n].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += n as u64;
    }
}

/// Exists while a snapshot is being restored into the directory.
pub(crate) const RESTORING: &str = "RESTORING";

/// The segments in order. A last one without a header was torn by a crash and is removed: no write
/// to it was ever acknowledged.
fn open_segments(disk: &dyn Disk) -> Result<Vec<(Segment, SegmentHeader)>, StoreError> {
    let failed = |error: std::io::Error| {
        StoreError::Unavailable(format!("cannot open the data directory: {error}"))
    };
    let names = disk.list().map_err(failed)?;
    if names.iter().any(|name| name == RESTORING) {
        return Err(StoreError::Unavailable(
            "the restore of a snapshot into the data directory was interrupted; restore it again"
                .into(),
        ));
    }
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment::number_of(name)).collect();
    numbers.sort_unstable();
    let mut segments = Vec::with_capacity(numbers.len());
    for (n, number) in numbers.iter().copied().enumerate() {
        if n > 0 && number != numbers[n - 1] + 1 {
            let name = segment::file_name(number - 1);
            return Err(StoreError::Corrupt(format!("{name} is missing")));
        }
        let segment = Segment::open(disk, number).map_err(failed)?;
        match segment.header()? {
            Some(header) => segments.push((segment, header)),
            None if n + 1 == numbers.len() && !segment.has_later_batch(0)? => {
                drop(segment);
                disk.remove(&segment::file_name(number)).map_err(failed)?;
                disk.sync().map_err(failed)?;
            }
            None => {
                let name = segment::file_name(number);
                return Err(StoreError::Corrupt(format!("{name} does not begin with a header")));
            }
        }
    }
    Ok(segments)
}

/// The state of recovery.
struct Loader {
    index: Index,
    hint: HintBuilder,
    /// The keys of the revisions that watches may start from.
    recent: BTreeMap<u64, Str>,
    expirations: BTreeMap<Str, (u64, u64)>,
    /// Moved records that were replaced already: (key, revision, replaced by).
    superseded: Vec<(Str, u64, u64)>,
    /// From the last batch of the current segment to the end of its records; from the beginning if
    /// it has no batch.
    tail: Range<u64>,
}

impl Loader {
    fn new(revision: u64, compacted: u64) -> Self {
        Self {
            index: Index::new(revision, compacted),
            hint: HintBuilder::default(),
            recent: BTreeMap::new(),
            expirations: BTreeMap::new(),
            superseded: Vec::new(),
            tail: 0..HEADER_BYTES as u64,
        }
    }

    fn begin_segment(
        &mut self,
        segment: &Arc<Segment>,
        header: SegmentHeader,
    ) -> Result<(), StoreError> {
        // Each segment says at which revision the previous one ended, so that a lost end is
        // noticed.
        if header.revision != self.index.revision && !self.index.segments.is_empty() {
            return Err(StoreError::Corrupt(format!(
                "{} continues from revision {}, but the log before it ends at {}",
                segment::file_name(header.number),
                header.revision,
                self.index.revision
            )));
        }
        self.index.compacted = self.index.compacted.max(header.compacted);
        let used = SegmentUsage {
            segment: Arc::clone(segment),
            bytes: HEADER_BYTES as u64,
            live: 0,
            newest: header.revision,
        };
        self.index.segments.insert(segment.number, used);
        self.hint = HintBuilder::default();
        Ok(())
    }

    fn load(&mut self, segment: &Arc<Segment>, offset: u32, len: u32, header: RecordHeader) {
        self.hint.add(&header, offset, len);
        if header.kind == RecordKind::Compact {
            self.index.compacted = self.index.compacted.max(header.revision);
            return;
        }
        if header.kind == RecordKind::Moved {
            if header.superseded > 0 {
                self.superseded.push((header.key.clone(), header.revision, header.superseded));
            }
        } else {
            self.index.revision = self.index.revision.max(header.revision);
            if let Some(used) = self.index.segments.get_mut(&segment.number) {
                used.newest = used.newest.max(header.revision);
            }
        }
        if header.expires_ms > 0 {
            let newest = self.expirations.entry(header.key.clone()).or_default();
            if newest.1 <= header.revision {
                *newest = (header.expires_ms, header.revision);
            }
        }
        if header.revision > self.index.compacted {
            self.recent.insert(header.revision, header.key.clone());
        }
        let version = Version::of(&header, segment.number, offset, len);
        self.index.insert(header.key, version);
    }

    /// Reads a segment's records and returns where they end.
    fn scan(&mut self, segment: &Arc<Segment>) -> Result<u64, StoreError> {
        let mut batch = 0;
        let end = segment.scan(HEADER_BYTES as u64, |offset, len, decoded| {
            batch = u64::from(offset.saturating_sub(decoded.batch_back));
            self.load(segment, offset, len, decoded.header);
            true
        })?;
        if segment.has_later_batch(end)? {
            return Err(StoreError::Corrupt(format!(
                "{} is damaged at byte {end}: later records follow",
                segment::file_name(segment.number)
            )));
        }
        self.tail = batch..end;
        Ok(end)
    }

    fn finish_segment(&mut self, segment: &Arc<Segment>, end: u64) {
        if let Some(used) = self.index.segments.get_mut(&segment.number) {
            used.bytes = end;
        }
    }

    fn finish(mut self, active: Arc<Segment>) -> Result<Recovered, StoreError> {
        let compacted = self.index.compacted;
        for (key, revision, by) in self.superseded {
            // The record that replaced it may have been reclaimed already.
            if by <= compacted {
                self.index.remove(&key, revision);
            }
        }
        // Only existing revisions can be compacted, and a write needs a next revision.
        let first = compacted.checked_add(1).filter(|_| compacted <= self.index.revision);
        let Some(first) = first else {
            return Err(StoreError::Corrupt(format!(
                "the log is compacted to revision {compacted}, but ends at {}",
                self.index.revision
            )));
        };
        let recent = self.recent.split_off(&first);
        let mut history = VecDeque::with_capacity(recent.len());
        for (expected, (revision, key)) in (first..).zip(recent) {
            if revision != expected {
                return Err(StoreError::Corrupt(format!("revision {expected} is missing")));
            }
            history.push_back(key);
        }
        if compacted + history.len() as u64 != self.index.revision {
            return Err(StoreError::Corrupt("the newest revisions are missing".into()));
        }
        self.index.set_history(history);
        self.index.prune_all();

        let index = self.index;
        let current = |key: &Str, revision| {
            index.newest(key).is_some_and(|version| version.revision == revision)
        };
        let expirations = self
            .expirations
            .into_iter()
            .filter(|(key, (_, revision))| current(key, *revision))
            .map(|(key, (at, revision))| (at, revision, key))
            .collect();
        Ok(Recovered { index, active, hint: self.hint, tail: Some(self.tail), expirations })
    }
}
