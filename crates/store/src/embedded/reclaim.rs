//! Reclaims disk space. The log is a queue of segments: live records of the oldest are copied to
//! the end, then the oldest is deleted.
//!
//! Only the oldest, because a deletion must not disappear while an older value of its key is still
//! in the log: the next recovery would find the value and not its deletion.

use std::io;
use std::sync::Arc;

use super::hint;
use super::index::Version;
use super::record::{RecordHeader, RecordKind};
use super::segment::{self, HEADER_BYTES, Segment};
use super::writer::Writer;
use crate::failpoint::failpoint;

/// A segment that is being reclaimed.
pub(crate) struct Reclaim {
    segment: Arc<Segment>,
    /// Up to where its live records are copied.
    at: u64,
}

/// How much is copied between two batches of writes.
const COPY_STEP_BYTES: usize = 256 << 10;

impl Writer {
    /// Starts to reclaim the oldest segment if too much of the log is garbage.
    pub(super) fn start_reclaim(&mut self) {
        // Segments have to be deleted in order, so a pending deletion comes first.
        if self.reclaim.is_some() || !self.delete_pending_file() {
            return;
        }
        let index = self.store.index.read();
        let (bytes, live) = index.usage();
        let Some(oldest) = index.segments.values().next() else { return };
        // A record after the compacted revision may still be needed.
        let possible =
            oldest.segment.number != self.active.number && oldest.newest <= index.compacted;
        let worthwhile = oldest.live == 0 || bytes > 2 * live + self.tuning.segment_bytes;
        if possible && worthwhile {
            let segment = Arc::clone(&oldest.segment);
            drop(index);
            self.reclaim = Some(Reclaim { segment, at: HEADER_BYTES as u64 });
        }
    }

    /// Copies some live records, and deletes the segment when there are no more.
    pub(super) fn reclaim_step(&mut self) {
        let Some(Reclaim { segment, at }) = self.reclaim.take() else { return };
        match self.copy_live_records(&segment, at) {
            Ok(Some(at)) => self.reclaim = Some(Reclaim { segment, at }),
            Ok(None) => {
                self.delete_segment(&segment);
                self.start_reclaim();
            }
            // Retried after the next compaction; nothing has been lost.
            Err(error) => tracing::warn!(%error, "disk space could not be reclaimed"),
        }
    }

    /// Returns where to continue, or `None` at the end of the segment.
    fn copy_live_records(
        &mut self,
        segment: &Arc<Segment>,
        from: u64,
    ) -> Result<Option<u64>, crate::StoreError> {
        let mut bytes = Vec::new();
        let mut moved: Vec<(RecordHeader, u32, u32)> = Vec::new();
        let (end, reached) = {
            let index = self.store.index.read();
            let end = index.segments.get(&segment.number).map_or(0, |used| used.bytes);
            let reached = segment.scan(from, |_, _, decoded| {
                let header = decoded.header;
                let key = header.key.as_str();
                if let Some(superseded) = index.refers_to(key, header.revision, segment.number) {
                    let kind = if header.kind == RecordKind::Delete {
                        RecordKind::Delete
                    } else {
                        RecordKind::Moved
                    };
                    let header = RecordHeader { kind, superseded, ..header };
                    let at = bytes.len() as u32;
                    let len = header.encode(decoded.value, &mut bytes);
                    moved.push((header, at, len));
                }
                bytes.len() < COPY_STEP_BYTES
            })?;
            (end, reached)
        };
        if bytes.is_empty() && reached < end {
            return Err(crate::StoreError::Corrupt(format!(
                "{} cannot be read at byte {reached}",
                segment::file_name(segment.number)
            )));
        }
        let offset = self.append(&bytes)?;
        failpoint!("reclaim.copied");
        let number = self.active.number;
        for (header, at, len) in &moved {
            let place = (offset + u64::from(*at)) as u32;
            self.hint().add(header, place, *len);
        }
        let end_now = self.end();
        let mut index = self.store.index.write();
        for (header, at, len) in moved {
            let place = (offset + u64::from(at)) as u32;
            index.insert(header.key.clone(), Version::of(&header, number, place, len));
        }
        if let Some(used) = index.segments.get_mut(&number) {
            used.bytes = end_now;
        }
        Ok((reached < end).then_some(reached))
    }

    fn delete_segment(&mut self, segment: &Arc<Segment>) {
        let mut index = self.store.index.write();
        let live = index.segments.get(&segment.number).map_or(0, |used| used.live);
        if live > 0 {
            tracing::error!(
                segment = segment.number,
                live,
                "a segment with live records was not deleted"
            );
            return;
        }
        index.segments.remove(&segment.number);
        drop(index);
        failpoint!("reclaim.emptied");
        self.pending_deletion = Some(segment.number);
    }

    /// Deletes the file of a reclaimed segment. Returns whether no deletion is pending.
    fn delete_pending_file(&mut self) -> bool {
        let Some(number) = self.pending_deletion else { return true };
        let disk = &*self.store.disk;
        let gone = |deleted: io::Result<()>| match deleted {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            deleted => deleted,
        };
        // Readers of the file have it open and are not affected.
        let deleted = gone(disk.remove(&segment::file_name(number)))
            .and_then(|()| {
                failpoint!("reclaim.deleted");
                gone(disk.remove(&hint::file_name(number)))
            })
            .and_then(|()| disk.sync());
        match deleted {
            Ok(()) => self.pending_deletion = None,
            Err(error) => {
                tracing::warn!(%error, segment = number, "an old segment could not be deleted");
            }
        }
        self.pending_deletion.is_none()
    }
}
