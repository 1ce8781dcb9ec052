//! Wakes watchers, a few hundred at a time.
//!
//! An event may be for thousands of watchers, each on a connection of its own. The runtime runs tasks in the order in which
//! they were woken, so that a request that arrives a moment later would wait until the event has been encrypted and sent
//! thousands of times. So no more than [`WOKEN_MAX`] watchers of a cache are woken and have not looked for events yet; the
//! others follow when half of these have.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Their events are sent in a few milliseconds. Watches that share a connection are best woken together, and hundreds of them
/// may.
pub(crate) const WOKEN_MAX: u32 = 512;

#[derive(Default)]
pub(crate) struct WakeQueue {
    /// Those that are still to be woken.
    waiting: Mutex<VecDeque<Weak<WakerSlot>>>,
    /// Those that were woken and have not looked since: the number in the lower half, in the upper half the round in which
    /// they were. Watchers whose clients do not read never look; the next round no longer counts them.
    woken: AtomicU64,
    /// Half of the woken ones have looked.
    has_room: Notify,
}

const ROUND: u64 = 1 << 32;

fn count(woken: u64) -> u32 {
    woken as u32
}

/// Where a watcher registers its waker. It keeps the slot and the waker from event to event, so that waiting is cheap with
/// hundreds of watchers.
pub(crate) struct WakerSlot {
    registered: Mutex<Registered>,
    queue: Arc<WakeQueue>,
}

#[derive(Default)]
struct Registered {
    waker: Option<Waker>,
    /// Whether the next events wake it. A watcher whose client does not read is woken once, not with every event.
    armed: bool,
    is_waiting: bool,
    /// The round in which it was woken, until it looks.
    woken: Option<u64>,
}

impl WakerSlot {
    pub(crate) fn new(queue: &Arc<WakeQueue>) -> Self {
        Self { registered: Mutex::default(), queue: queue.clone() }
    }

    /// Wakes `waker` when the next events arrive, once. The watcher looks for events afterwards.
    pub(crate) fn register(&self, waker: &Waker) {
        let mut registered = self.registered.lock();
        if !registered.waker.as_ref().is_some_and(|waiting| waiting.will_wake(waker)) {
            registered.waker = Some(waker.clone());
        }
        registered.armed = true;
        if let Some(round) = registered.woken.take() {
            self.queue.has_looked(round);
        }
    }

    /// Wakes the watcher, however many were woken before.
    pub(crate) fn wake(&self) {
        let mut registered = self.registered.lock();
        registered.is_waiting = false;
        if std::mem::take(&mut registered.armed)
            && let Some(waker) = &registered.waker
        {
            waker.wake_by_ref();
            registered.woken = Some(self.queue.has_woken());
        }
    }

    /// Whether it is to be added to those that wait.
    fn begin_waiting(&self) -> bool {
        let mut registered = self.registered.lock();
        registered.armed && !std::mem::replace(&mut registered.is_waiting, true)
    }
}

impl Drop for WakerSlot {
    fn drop(&mut self) {
        if let Some(round) = self.registered.get_mut().woken {
            self.queue.has_looked(round);
        }
    }
}

impl WakeQueue {
    /// Wakes a watcher, now or in its turn.
    pub(crate) fn wake(&self, slot: &Arc<WakerSlot>) {
        // A moment too late does no harm: it is the order of magnitude that counts.
        if count(self.woken.load(Ordering::Relaxed)) < WOKEN_MAX {
            slot.wake();
        } else if slot.begin_waiting() {
            self.waiting.lock().push_back(Arc::downgrade(slot));
        }
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.lock().is_empty()
    }

    /// Wakes as many of those that wait as there is room for; returns how many.
    pub(crate) fn wake_waiting(&self) -> usize {
        let room = WOKEN_MAX.saturating_sub(count(self.woken.load(Ordering::Relaxed))) as usize;
        let mut waiting = self.waiting.lock();
        let next: Vec<_> = (0..room).map_while(|_| waiting.pop_front()).collect();
        if waiting.is_empty() {
            waiting.shrink_to(WOKEN_MAX as usize);
        }
        drop(waiting);
        next.iter().filter_map(Weak::upgrade).for_each(|slot| slot.wake());
        next.len()
    }

    /// Waits until there is room for many of those that wait.
    pub(crate) async fn room(&self) {
        self.has_room.notified().await;
    }

    /// Counts none of those that were woken so far any longer.
    pub(crate) fn begin_round(&self) {
        let next = |woken: u64| Some((woken & !(ROUND - 1)).wrapping_add(ROUND));
        // The closure never refuses.
        let _ = self.woken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// Counts one more; returns the round.
    fn has_woken(&self) -> u64 {
        self.woken.fetch_add(1, Ordering::Relaxed) / ROUND
    }

    fn has_looked(&self, round: u64) {
        let less = |woken: u64| (woken / ROUND == round).then(|| woken - 1);
        if let Ok(before) = self.woken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            && count(before) == WOKEN_MAX / 2
        {
            self.has_room.notify_one();
        }
    }
}

/// Watchers that were woken have looked for events by then, or do not: their clients do not read.
const ROUND_MAX: Duration = Duration::from_millis(10);

/// When those that were woken count no longer, while others wait.
#[derive(Default)]
pub(crate) struct WakeRound {
    ends: Option<Instant>,
    woken: usize,
}

impl WakeRound {
    /// After so many were woken. A few of them do not put off the end: the others may never look.
    pub(crate) fn progress(
        &mut self,
        woken: usize,
        has_waiting: bool,
        now: Instant,
    ) -> Option<Instant> {
        self.woken += woken;
        if !has_waiting || self.woken >= WOKEN_MAX as usize / 2 {
            *self = Self::default();
        }
        has_waiting.then(|| *self.ends.get_or_insert(now + ROUND_MAX))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// So many registered watchers that share a waker, which counts.
    fn watchers(queue: &Arc<WakeQueue>, n: u32) -> (Vec<Arc<WakerSlot>>, Arc<Woken>) {
        let woken = Arc::<Woken>::default();
        let waker = woken.clone().into();
        let slot = || {
            let slot = Arc::new(WakerSlot::new(queue));
            slot.register(&waker);
            slot
        };
        ((0..n).map(|_| slot()).collect(), woken)
    }

    fn wake_all(queue: &WakeQueue, slots: &[Arc<WakerSlot>]) {
        for slot in slots {
            queue.wake(slot);
        }
    }

    #[tokio::test]
    async fn the_next_watchers_are_woken_when_half_of_the_others_have_looked() {
        let queue = Arc::<WakeQueue>::default();
        let (slots, woken) = watchers(&queue, 2 * WOKEN_MAX);
        let count = || woken.0.load(Ordering::Relaxed) as u32;
        wake_all(&queue, &slots);
        // Each waits once, whatever comes meanwhile.
        wake_all(&queue, &slots);
        assert_eq!((count(), queue.waiting.lock().len() as u32), (WOKEN_MAX, WOKEN_MAX));
        assert_eq!(queue.wake_waiting(), 0);

        let waker = Arc::new(Woken::default()).into();
        slots[..=WOKEN_MAX as usize / 2].iter().for_each(|slot| slot.register(&waker));
        queue.room().await;
        assert_eq!(queue.wake_waiting() as u32, WOKEN_MAX / 2 + 1);
        assert_eq!(count(), WOKEN_MAX + WOKEN_MAX / 2 + 1);
        assert!(queue.has_waiting());
    }

    #[test]
    fn watchers_that_never_look_hold_up_the_others_for_one_round() {
        let queue = Arc::<WakeQueue>::default();
        let (stalled, _) = watchers(&queue, WOKEN_MAX);
        wake_all(&queue, &stalled);
        let (slots, woken) = watchers(&queue, 3);
        wake_all(&queue, &slots);
        assert_eq!(queue.wake_waiting(), 0);
        queue.begin_round();
        assert_eq!(queue.wake_waiting(), 3);
        assert_eq!(woken.0.load(Ordering::Relaxed), 3);
        // They count in the round in which they were woken only, also when they go.
        drop(stalled);
        assert_eq!(count(queue.woken.load(Ordering::Relaxed)), 3);
        drop(slots);
        assert_eq!(count(queue.woken.load(Ordering::Relaxed)), 0);
    }

    /// A client with 511 watches that it does not read left one place to all others, for as long as writes went on.
    #[test]
    fn a_few_that_look_do_not_put_off_the_end_of_a_round() {
        let now = Instant::now();
        let later = |ms| now + Duration::from_millis(ms);
        let mut round = WakeRound::default();
        assert_eq!(round.progress(0, true, now), Some(later(10)));
        for ms in 1..10 {
            assert_eq!(round.progress(1, true, later(ms)), Some(later(10)));
        }
        assert_eq!(round.progress(WOKEN_MAX as usize / 2, true, later(9)), Some(later(19)));
        assert_eq!(round.progress(1, false, later(12)), None);
        assert_eq!(round.progress(0, true, later(13)), Some(later(23)));
    }

    #[test]
    fn a_watcher_that_is_gone_is_left_out() {
        let queue = Arc::<WakeQueue>::default();
        let (slots, woken) = watchers(&queue, WOKEN_MAX + 2);
        wake_all(&queue, &slots);
        drop(slots);
        assert_eq!(queue.wake_waiting(), 2);
        assert_eq!(woken.0.load(Ordering::Relaxed) as u32, WOKEN_MAX);
    }
}
