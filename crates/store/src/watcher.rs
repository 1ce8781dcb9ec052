//! One client's watch: a position in a queue of events that all watchers share.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::ring::{EndReason, Position, QueueRead, Ring, Trigger};
use crate::wake_queue::WakerSlot;
use crate::{Event, StoreError, Timer};

/// A watch on the cache. It has no buffer: a watcher that does not keep up loses events and ends
/// with `TooSlow`.
pub struct Watcher {
    ring: Arc<Ring>,
    position: Position,
    trigger: Option<Trigger>,
    /// The client has seen all events up to this revision.
    seen: u64,
    waker_slot: Arc<WakerSlot>,
    bookmarks: Option<Bookmarks>,
}

struct Bookmarks {
    every: Duration,
    /// Kept from poll to poll: a new timer each time would be registered and cancelled with every
    /// event.
    due: Timer,
    /// Whether the reflector was asked for the backend's newest revision.
    asked: bool,
}

/// The next item of a watch.
#[derive(Debug, Clone)]
pub enum WatchItem {
    /// Events in order; never empty.
    Events(Vec<Arc<Event>>),
    /// There are no other events up to this revision. Only with bookmarks.
    Progress(u64),
    /// The watcher fell too far behind: events it has not seen were evicted. The watch is over.
    TooSlow,
    /// The cache lost events and was filled again: the client has to list again. The watch is over.
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
        let waker_slot = position.bucket.waker_slot(ring.wake_queue());
        Ok(Self { ring, position, trigger, seen: after, waker_slot, bookmarks: None })
    }

    /// Requests `Progress` about this often, whenever the revision has changed.
    #[must_use]
    pub fn with_bookmarks(mut self, every: Duration) -> Self {
        self.bookmarks = Some(Bookmarks { every, due: Timer::new(every), asked: false });
        self
    }

    /// Waits for the next item. Cancel-safe.
    pub async fn next(&mut self) -> WatchItem {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The next item, or `Pending` with the waker registered.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<WatchItem> {
        // Before reading the queue, so that no wake-up is lost in between.
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

    /// First requests progress from the backend, since the cache of a quiet resource does not learn
    /// the newest revision otherwise, and reports it a moment later.
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

    /// The next item if there is one already.
    pub fn try_next(&mut self) -> Option<WatchItem> {
        loop {
            match self.position.bucket.read(self.position.next, BATCH_EVENTS_MAX) {
                QueueRead::Events(mut events) => {
                    self.position.next += events.len() as u64;
                    // Only a watch that started at a future revision can see events that it has to
                    // skip.
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

    /// The revision up to which this watcher has taken every event, for a bookmark. `None` while
    /// events are waiting.
    pub fn progress(&mut self) -> Option<u64> {
        // Loaded before reading the queue: events that are delivered later do not count.
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

/// Large enough to amortise a wake-up, small enough for one write.
const BATCH_EVENTS_MAX: usize = 128;
const PROGRESS_WAIT: Duration = Duration::from_millis(100);

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(trigger) = &self.trigger {
            self.ring.unsubscribe(trigger);
        }
    }
}
