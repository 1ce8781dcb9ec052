//! One client's watch: a position in a queue of events that all watchers share.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::ring::{EndReason, Position, QueueRead, Ring, Trigger, WakerSlot};
use crate::{Event, StoreError, Timer};

/// A watch on the cache. It buffers nothing: a watcher that does not keep up misses events and is
/// told so.
pub struct Watcher {
    ring: Arc<Ring>,
    position: Position,
    trigger: Option<Trigger>,
    /// Events up to here are known to the client.
    seen: u64,
    waker_slot: Arc<WakerSlot>,
    bookmarks: Option<Bookmarks>,
}

struct Bookmarks {
    every: Duration,
    /// Kept through all waits: a timer of its own for each would be set and cleared with every event.
    due: Timer,
    /// Whether the backend has been asked how far it is.
    asked: bool,
}

/// What comes next on a watch.
#[derive(Debug, Clone)]
pub enum WatchItem {
    /// Events in order; never empty.
    Events(Vec<Arc<Event>>),
    /// Nothing is missing up to this revision. Comes only to those who asked for bookmarks.
    Progress(u64),
    /// The watcher fell too far behind: events it has not seen are gone. The watch is over.
    TooSlow,
    /// The cache itself lost events and started anew: the client has to list again. The watch is
    /// over.
    Expired,
    /// The resource is no longer served, or the server stops. The watch is over.
    Closed,
}

impl Watcher {
    pub(crate) fn new(
        ring: Arc<Ring>,
        after: u64,
        trigger: Option<Trigger>,
    ) -> Result<Self, StoreError> {
        let position = ring.subscribe(after, trigger.as_ref())?;
        let waker_slot = position.bucket.waker_slot();
        Ok(Self { ring, position, trigger, seen: after, waker_slot, bookmarks: None })
    }

    /// Asks for `Progress` about this often, whenever the cache has moved on.
    #[must_use]
    pub fn with_bookmarks(mut self, every: Duration) -> Self {
        self.bookmarks = Some(Bookmarks { every, due: Timer::new(every), asked: false });
        self
    }

    /// Waits for what comes next. Dropping the future loses nothing.
    pub async fn next(&mut self) -> WatchItem {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// What comes next, or `Pending` with a wake-up for it.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<WatchItem> {
        // Before looking for events, so that none falls in between.
        self.waker_slot.register(cx.waker());
        loop {
            if let Some(item) = self.try_next() {
                return Poll::Ready(item);
            }
            let Some(bookmarks) = &mut self.bookmarks else { return Poll::Pending };
            ready!(bookmarks.due.poll(cx));
            let before = self.seen;
            if let Some(revision) = self.bookmark_due()
                && revision > before
            {
                return Poll::Ready(WatchItem::Progress(revision));
            }
        }
    }

    /// First asks how far the backend is, since a quiet resource does not hear of it otherwise,
    /// and a moment later tells what came of it.
    fn bookmark_due(&mut self) -> Option<u64> {
        let bookmarks = self.bookmarks.as_mut()?;
        bookmarks.asked = !bookmarks.asked;
        let wait = if bookmarks.asked { PROGRESS_WAIT } else { bookmarks.every };
        bookmarks.due.reset(wait);
        if bookmarks.asked {
            self.ring.request_progress();
            return None;
        }
        self.progress()
    }

    /// What is there already, if anything.
    pub fn try_next(&mut self) -> Option<WatchItem> {
        loop {
            match self.position.bucket.read(self.position.next, BATCH_EVENTS_MAX) {
                QueueRead::Events(mut events) => {
                    self.position.next += events.len() as u64;
                    // Only a watch that began in the future can meet events it knows.
                    events.retain(|event| event.revision > self.seen);
                    let Some(last) = events.last() else { continue };
                    self.seen = last.revision;
                    return Some(WatchItem::Events(events));
                }
                QueueRead::Empty => return None,
                QueueRead::Missed => {
                    self.ring.count_slow();
                    return Some(WatchItem::TooSlow);
                }
                QueueRead::Ended(EndReason::Gap) => return Some(WatchItem::Expired),
                QueueRead::Ended(EndReason::Closed) => return Some(WatchItem::Closed),
            }
        }
    }

    /// How far the cache is, if this watcher has taken every event up to there: what a bookmark
    /// may say now. `None` while events are waiting.
    pub fn progress(&mut self) -> Option<u64> {
        // Asked for before looking at the queue: what is delivered later is not counted.
        let delivered = self.ring.delivered();
        match self.position.bucket.read(self.position.next, 1) {
            QueueRead::Empty => {
                self.seen = self.seen.max(delivered);
                Some(self.seen)
            }
            _ => None,
        }
    }

    /// Up to which revision the watcher has seen everything.
    pub fn seen(&self) -> u64 {
        self.seen
    }
}

/// Enough to make a wake-up worth it, and little enough to write in one go.
const BATCH_EVENTS_MAX: usize = 128;
const PROGRESS_WAIT: Duration = Duration::from_millis(100);

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(trigger) = &self.trigger {
            self.ring.unsubscribe(trigger);
        }
    }
}
