//! The recent events of a resource, shared by all watchers.
//!
//! A watcher is a position in a queue and a waker. Most watchers read the queue of all events;
//! those that select one object, one namespace or one value of the indexed field read a queue of
//! their own (a trigger's), and are neither woken nor overrun by other events.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use meta::Str;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::wake_queue::{WakeQueue, WakerSlot};
use crate::{Event, StoreError};

/// Which events wake a watcher, when that can be decided cheaply.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// The object with this full key.
    Key(Str),
    /// The objects of this namespace.
    Namespace(Str),
    /// The objects whose indexed field has, or had until now, this value.
    Index(Str),
}

/// How many events are kept. The count grows up to `events_max` while they are younger than `age`;
/// older ones are evicted down to `events_min`.
#[derive(Debug, Clone)]
pub struct RingLimits {
    pub events_min: usize,
    pub events_max: usize,
    pub age: Duration,
    /// What the events may retain in memory beyond the current state, whatever their age.
    pub bytes_max: usize,
}

impl Default for RingLimits {
    fn default() -> Self {
        Self {
            events_min: 100,
            events_max: 102_400,
            age: Duration::from_secs(75),
            bytes_max: 64 << 20,
        }
    }
}

pub(crate) struct Ring {
    limits: RingLimits,
    /// Which of the entries' fields `Trigger::Index` refers to.
    field: Option<usize>,
    all: Arc<Bucket>,
    /// The buckets of the triggers that have watchers. Lock order: this one, then a queue.
    triggered: Mutex<HashMap<Trigger, TriggerBucket>>,
    /// All events up to this revision are in the queues.
    delivered: AtomicU64,
    /// Makes the reflector ask the backend for its newest revision.
    progress_wanted: Arc<Notify>,
    counters: Arc<CacheCounters>,
    wake_queue: Arc<WakeQueue>,
}

/// Counters of a cache, across all its rings.
#[derive(Default)]
pub(crate) struct CacheCounters {
    pub(crate) watchers_slow: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) initializations: AtomicU64,
}

/// The bucket of one trigger.
struct TriggerBucket {
    bucket: Arc<Bucket>,
    /// Invariant: one for each [`Ring::subscribe`] without its [`Ring::unsubscribe`] yet, and never
    /// 0: the last watcher removes the bucket. Counted under the lock of the map: references to the
    /// bucket are dropped outside of it and do not tell which watcher is the last.
    watchers: usize,
}

/// A queue and the watchers that wait for it to grow.
pub(crate) struct Bucket {
    queue: Mutex<Queue>,
    /// The position after the newest event, or [`LOOK`]. Watchers that have seen all need not take
    /// the lock, which hundreds of others take at the same time.
    end: AtomicU64,
    /// Lock order: never together with `queue`.
    waker_slots: Mutex<Vec<Weak<WakerSlot>>>,
}

/// Events in the order of their revisions. Positions count up from an arbitrary start and stay
/// valid while events are appended at the back and evicted at the front.
struct Queue {
    front: u64,
    events: VecDeque<Arc<Event>>,
    /// Every event with a greater revision is in the queue.
    complete_after: u64,
    bytes: usize,
    /// Frames of events before this position have been released.
    frames_released: u64,
    ended: Option<EndReason>,
}

/// Why there will be no more events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// Events were lost between the backend and the cache.
    Gap,
    /// The cache was stopped.
    Closed,
}

/// What a watcher reads from its queue.
pub(crate) enum QueueRead {
    Events(Vec<Arc<Event>>),
    Empty,
    /// The next event of the watcher was evicted.
    Missed,
    Ended(EndReason),
}

/// The read position of a watcher.
pub(crate) struct Position {
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) next: u64,
}

impl Ring {
    /// An empty ring, from which watches can start at `revision`.
    pub(crate) fn new(
        limits: RingLimits,
        field: Option<usize>,
        revision: u64,
        progress_wanted: Arc<Notify>,
        counters: Arc<CacheCounters>,
    ) -> Self {
        Self {
            limits,
            field,
            progress_wanted,
            all: Arc::new(Bucket::new(revision)),
            triggered: Mutex::default(),
            delivered: AtomicU64::new(revision),
            counters,
            wake_queue: Arc::default(),
        }
    }

    /// Up to which revision events are in the queues. A watcher that finds its queue empty after
    /// reading this has seen every event up to it.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Acquire)
    }

    pub(crate) fn request_progress(&self) {
        self.progress_wanted.notify_one();
    }

    /// The oldest revision from which a watch can start.
    pub(crate) fn oldest(&self) -> u64 {
        self.all.queue.lock().complete_after
    }

    pub(crate) fn events(&self) -> usize {
        self.all.queue.lock().events.len()
    }

    /// What the events retain in memory beyond the current state.
    pub(crate) fn bytes(&self) -> usize {
        self.all.queue.lock().bytes
    }

    /// The watchers that are to be woken. The reflector wakes those that wait.
    pub(crate) fn wake_queue(&self) -> &Arc<WakeQueue> {
        &self.wake_queue
    }

    pub(crate) fn count_slow(&self) {
        self.counters.watchers_slow.fetch_add(1, Ordering::Relaxed);
    }

    /// Appends events, publishes the revision, and wakes the watchers concerned: once each, however
    /// many events there are, and in their turns if they are many.
    pub(crate) fn push(&self, events: &[Arc<Event>], revision: u64, now: Instant) {
        self.counters.received.fetch_add(events.len() as u64, Ordering::Relaxed);
        let mut touched: Vec<Arc<Bucket>> = Vec::new();
        {
            let triggered = self.triggered.lock();
            let mut all = self.all.queue.lock();
            all.extend(events, &self.limits, now);
            self.all.publish(&all);
            drop(all);
            if !triggered.is_empty() {
                for event in events {
                    for trigger in triggers(event, self.field) {
                        let Some(TriggerBucket { bucket, .. }) = triggered.get(&trigger) else {
                            continue;
                        };
                        let mut queue = bucket.queue.lock();
                        queue.events.push_back(Arc::clone(event));
                        bucket.publish(&queue);
                        drop(queue);
                        touched.push(Arc::clone(bucket));
                    }
                }
            }
            self.delivered.store(revision, Ordering::Release);
        }
        if !events.is_empty() {
            self.all.wake(|slot| self.wake_queue.wake(slot));
        }
        touched.sort_unstable_by_key(Arc::as_ptr);
        touched.dedup_by_key(|bucket| Arc::as_ptr(bucket));
        for bucket in touched {
            bucket.wake(|slot| self.wake_queue.wake(slot));
        }
    }

    /// Evicts old events, and frames older than `frames_age`. Returns whether there will be more to
    /// evict later.
    pub(crate) fn evict(&self, now: Instant, frames_age: Duration) -> bool {
        let triggered = self.triggered.lock();
        let mut all = self.all.queue.lock();
        all.trim(&self.limits, now);
        all.release_frames(now, frames_age);
        let gone = all.complete_after;
        for TriggerBucket { bucket, .. } in triggered.values() {
            bucket.queue.lock().drop_up_to(gone);
        }
        all.events.len() > self.limits.events_min
            || all.frames_released < all.front + all.events.len() as u64
    }

    /// A position after `after` in the queue of the trigger, or of all events.
    pub(crate) fn subscribe(
        &self,
        after: u64,
        trigger: Option<&Trigger>,
    ) -> Result<Position, StoreError> {
        let mut triggered = self.triggered.lock();
        let all = self.all.queue.lock();
        if after < all.complete_after {
            return Err(StoreError::Expired { oldest: all.complete_after });
        }
        let Some(trigger) = trigger else {
            return Ok(Position { bucket: Arc::clone(&self.all), next: all.position_after(after) });
        };
        let TriggerBucket { bucket, watchers } =
            triggered.entry(trigger.clone()).or_insert_with(|| TriggerBucket {
                bucket: Arc::new(Bucket::new(self.delivered())),
                watchers: 0,
            });
        *watchers += 1;
        let mut queue = bucket.queue.lock();
        queue.ended = all.ended;
        if queue.complete_after > after {
            let missing = all.between(after, queue.complete_after);
            for event in missing.rev() {
                if triggers(event, self.field).any(|have| have == *trigger) {
                    queue.events.push_front(Arc::clone(event));
                    queue.front -= 1;
                }
            }
            queue.complete_after = after;
        }
        bucket.publish(&queue);
        let next = queue.position_after(after);
        drop(queue);
        Ok(Position { bucket: Arc::clone(bucket), next })
    }

    /// Ends a subscription with this trigger. The last watcher of a trigger removes its bucket.
    pub(crate) fn unsubscribe(&self, trigger: &Trigger) {
        let mut triggered = self.triggered.lock();
        let Some(TriggerBucket { watchers, .. }) = triggered.get_mut(trigger) else { return };
        *watchers -= 1;
        if *watchers == 0 {
            triggered.remove(trigger);
        }
    }

    /// The events in `(after, through]`, newest first, or `None` if some of them are missing
    /// (evicted, or not received yet).
    pub(crate) fn newest_first(&self, after: u64, through: u64) -> Option<Vec<Arc<Event>>> {
        let all = self.all.queue.lock();
        let known = after >= all.complete_after && through <= self.delivered();
        known.then(|| all.between(after, through).rev().cloned().collect())
    }

    /// Ends every watcher.
    pub(crate) fn end(&self, end: EndReason) {
        let triggered = self.triggered.lock();
        let buckets = triggered.values().map(|TriggerBucket { bucket, .. }| bucket);
        for bucket in buckets.chain([&self.all]) {
            let mut queue = bucket.queue.lock();
            queue.ended.get_or_insert(end);
            bucket.publish(&queue);
            drop(queue);
            bucket.wake(|slot| slot.wake());
        }
    }
}

/// The end of a queue of which watchers have to learn more: it has ended.
const LOOK: u64 = u64::MAX;
/// Positions start high enough that older events can be added at the front.
const START: u64 = 1 << 40;

impl Bucket {
    fn new(complete_after: u64) -> Self {
        let queue = Queue {
            front: START,
            events: VecDeque::new(),
            complete_after,
            bytes: 0,
            frames_released: START,
            ended: None,
        };
        let (queue, end) = (Mutex::new(queue), AtomicU64::new(START));
        Self { queue, end, waker_slots: Mutex::default() }
    }

    /// Lets watchers see a change at the back of the queue. Before they are woken, so that one
    /// that has registered its waker either sees it or is woken.
    fn publish(&self, queue: &Queue) {
        let end = queue.front + queue.events.len() as u64;
        self.end.store(if queue.ended.is_some() { LOOK } else { end }, Ordering::Release);
    }

    /// Adds a slot; it is removed after it was dropped.
    pub(crate) fn waker_slot(&self, wake_queue: &Arc<WakeQueue>) -> Arc<WakerSlot> {
        let waker_slot = Arc::new(WakerSlot::new(wake_queue));
        let mut waker_slots = self.waker_slots.lock();
        // Dropped slots are removed before the vector grows, so that it has at most twice as many
        // slots as there are watchers.
        if waker_slots.len() == waker_slots.capacity() {
            waker_slots.retain(|waker_slot| waker_slot.strong_count() > 0);
        }
        waker_slots.push(Arc::downgrade(&waker_slot));
        waker_slot
    }

    fn wake(&self, wake: impl Fn(&Arc<WakerSlot>)) {
        let mut gone = false;
        let mut waker_slots = self.waker_slots.lock();
        for waker_slot in &*waker_slots {
            match waker_slot.upgrade() {
                Some(waker_slot) => wake(&waker_slot),
                None => gone = true,
            }
        }
        if gone {
            waker_slots.retain(|waker_slot| waker_slot.strong_count() > 0);
        }
    }

    /// The next events at a position, at most `n`.
    pub(crate) fn read(&self, next: u64, n: usize) -> QueueRead {
        if self.end.load(Ordering::Acquire) == next {
            return QueueRead::Empty;
        }
        let queue = self.queue.lock();
        if next < queue.front {
            return QueueRead::Missed;
        }
        let from = (next - queue.front) as usize;
        let events: Vec<_> = queue.events.iter().skip(from).take(n).cloned().collect();
        match (events.is_empty(), queue.ended) {
            (false, _) => QueueRead::Events(events),
            (true, Some(end)) => QueueRead::Ended(end),
            (true, None) => QueueRead::Empty,
        }
    }
}

impl Queue {
    fn extend(&mut self, events: &[Arc<Event>], limits: &RingLimits, now: Instant) {
        for event in events {
            self.bytes += event.retained_bytes();
            self.events.push_back(Arc::clone(event));
        }
        self.trim(limits, now);
    }

    fn trim(&mut self, limits: &RingLimits, now: Instant) {
        while let Some(oldest) = self.events.front() {
            let old = now.duration_since(oldest.at) > limits.age;
            let over = self.events.len() > limits.events_max || self.bytes > limits.bytes_max;
            if !(over || (old && self.events.len() > limits.events_min)) {
                break;
            }
            self.bytes -= oldest.retained_bytes();
            self.drop_front();
        }
        // Gives back the memory of a burst.
        if self.events.capacity() > 1024 && self.events.len() < self.events.capacity() / 4 {
            self.events.shrink_to(self.events.len() * 2);
        }
    }

    fn drop_up_to(&mut self, revision: u64) {
        while self.events.front().is_some_and(|event| event.revision <= revision) {
            self.drop_front();
        }
        self.complete_after = self.complete_after.max(revision);
    }

    fn drop_front(&mut self) {
        if let Some(event) = self.events.pop_front() {
            self.front += 1;
            self.complete_after = event.revision;
        }
    }

    fn release_frames(&mut self, now: Instant, age: Duration) {
        self.frames_released = self.frames_released.max(self.front);
        let from = (self.frames_released - self.front) as usize;
        for event in self.events.range(from..) {
            if now.duration_since(event.at) < age {
                break;
            }
            event.release_frames();
            self.frames_released += 1;
        }
    }

    /// The position of the first event with a revision above `after`.
    fn position_after(&self, after: u64) -> u64 {
        self.front + self.events.partition_point(|event| event.revision <= after) as u64
    }

    /// The events in `(after, through]`.
    fn between(&self, after: u64, through: u64) -> impl DoubleEndedIterator<Item = &Arc<Event>> {
        let from = self.events.partition_point(|event| event.revision <= after);
        let to = self.events.partition_point(|event| event.revision <= through);
        self.events.range(from..to.max(from))
    }
}

/// The triggers that an event matches.
fn triggers(event: &Event, field: Option<usize>) -> impl Iterator<Item = Trigger> {
    let now = field.and_then(|n| event.entry.field(n));
    let before = field.and_then(|n| event.previous.as_ref()?.field(n)).filter(|v| Some(*v) != now);
    let namespace = Some(&event.entry.namespace).filter(|namespace| !namespace.is_empty());
    [
        Some(Trigger::Key(event.entry.key.clone())),
        namespace.map(|namespace| Trigger::Namespace(namespace.clone())),
        now.map(|value| Trigger::Index(value.clone())),
        before.map(|value| Trigger::Index(value.clone())),
    ]
    .into_iter()
    .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> Ring {
        Ring::new(RingLimits::default(), None, 1, Arc::default(), Arc::default())
    }

    fn node(n: usize) -> Trigger {
        Trigger::Index(format!("node-{n}").into())
    }

    /// The last watcher of a trigger was recognised by the number of references to its bucket. Two
    /// watchers that were dropped at once each saw the other's reference, and the bucket stayed and
    /// collected events for ever.
    #[test]
    fn the_last_unsubscribe_removes_the_bucket_even_if_it_is_still_referenced() {
        let ring = ring();
        let first = ring.subscribe(1, Some(&node(1))).expect("starts");
        let second = ring.subscribe(1, Some(&node(1))).expect("starts");
        ring.unsubscribe(&node(1));
        assert_eq!(ring.triggered.lock().len(), 1, "one is left");
        ring.unsubscribe(&node(1));
        assert_eq!(ring.triggered.lock().len(), 0, "both are gone");
        // As with two threads: both unsubscribe before either drops its position.
        drop((first, second));

        let third = ring.subscribe(1, Some(&node(1))).expect("starts again");
        let held = &ring.triggered.lock()[&node(1)];
        assert!(Arc::ptr_eq(&held.bucket, &third.bucket) && held.watchers == 1);
    }

    #[test]
    fn watchers_dropped_concurrently_leave_no_bucket_behind() {
        let ring = Arc::new(ring());
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let watchers: Vec<_> = (0..10)
                            .map(|n| {
                                let trigger = Some(node(n % 3));
                                crate::Watcher::new(Arc::clone(&ring), 1, trigger).expect("starts")
                            })
                            .collect();
                        start.wait();
                        drop(watchers);
                    }
                });
            }
        });
        assert_eq!(ring.triggered.lock().len(), 0);
    }
}
