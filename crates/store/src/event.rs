//! A watch event: one change of one object, with the frames it was encoded into.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::Entry;

/// What happened to the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    Added,
    Modified,
    Deleted,
}

/// One change of one object. Shared by all watchers, so that each encoding is made once.
#[derive(Debug)]
pub struct Event {
    pub kind: EventKind,
    pub revision: u64,
    /// The new state; for a deletion the last one, with the deletion's revision in place.
    pub entry: Arc<Entry>,
    /// The state before; `None` when the object is new.
    pub previous: Option<Arc<Entry>>,
    pub(crate) at: Instant,
    departed: OnceLock<Option<Arc<Entry>>>,
    frames: Mutex<Vec<(usize, Bytes)>>,
}

impl Event {
    pub(crate) fn new(
        kind: EventKind,
        revision: u64,
        entry: Arc<Entry>,
        previous: Option<Arc<Entry>>,
        at: Instant,
    ) -> Self {
        let (departed, frames) = (OnceLock::new(), Mutex::default());
        Self { kind, revision, entry, previous, at, departed, frames }
    }

    /// The event as sent to clients in the caller's `n`th encoding. The first watcher encodes it;
    /// those that follow soon share its bytes. The bytes are released soon after, because a frame
    /// is a copy of the object and late watchers are few.
    pub fn frame(&self, n: usize, make: impl FnOnce() -> Bytes) -> Bytes {
        let made = self.try_frame(n, || Ok::<_, std::convert::Infallible>(make()));
        made.unwrap_or_else(|never| match never {})
    }

    /// As [`Event::frame`], for an encoding that may fail: a failure is not kept.
    pub fn try_frame<E>(
        &self,
        n: usize,
        make: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let mut frames = self.frames.lock();
        if let Some((_, frame)) = frames.iter().find(|(have, _)| *have == n) {
            return Ok(frame.clone());
        }
        let frame = make()?;
        frames.push((n, frame.clone()));
        Ok(frame)
    }

    /// The previous state with this event's revision: what a watcher gets as DELETED when the
    /// object stops matching its selector. `None` when there was no previous state.
    pub fn departed(&self) -> Option<&Arc<Entry>> {
        if self.kind == EventKind::Deleted {
            return Some(&self.entry);
        }
        let make = || self.previous.as_ref()?.with_revision(self.revision).ok().map(Arc::new);
        self.departed.get_or_init(make).as_ref()
    }

    pub(crate) fn release_frames(&self) {
        *self.frames.lock() = Vec::new();
    }

    /// What keeping this event costs beyond the current state of the object.
    pub(crate) fn retained_bytes(&self) -> usize {
        let deleted = if self.kind == EventKind::Deleted { self.entry.json.len() } else { 0 };
        EVENT_BYTES + deleted + self.previous.as_ref().map_or(0, |entry| entry.json.len())
    }
}

/// Approximate size of an event and its positions in queues without the object's bytes.
const EVENT_BYTES: usize = 512;
