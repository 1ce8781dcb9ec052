//! Requests in flight: those that shutdown waits for, and watches that it ends.

use std::collections::HashMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Counts requests. Once draining has begun, no request is accepted.
#[derive(Default)]
pub struct InFlight {
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Requests inside; the highest bit says that draining has begun. One number, so that entering is one instruction and
    /// no request slips in between the check and the count.
    requests: AtomicUsize,
    long_running: Mutex<LongRunning>,
    /// A request has ended while draining.
    left: Notify,
}

const DRAINING: usize = 1 << (usize::BITS - 1);

#[derive(Default)]
struct LongRunning {
    inside: HashMap<u64, Arc<Slot>>,
    next: u64,
}

/// How to tell one long-running request that it is time to go.
#[derive(Default)]
struct Slot {
    ended: AtomicBool,
    waker: AtomicWaker,
}

/// The server is shutting down; the request has to go elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("apiserver is shutting down")]
pub struct Draining;

impl InFlight {
    /// Lets a request in until the guard is dropped. Long-running ones (watch, exec, proxy) are counted apart: shutdown ends
    /// them, see [`InFlightGuard::ending`], instead of waiting for them.
    pub fn enter(&self, long_running: bool) -> Result<InFlightGuard, Draining> {
        let state = self.state.clone();
        if !long_running {
            let guard = InFlightGuard { state, long_running: None };
            let before = self.state.requests.fetch_add(1, Ordering::AcqRel);
            return if before & DRAINING == 0 { Ok(guard) } else { Err(Draining) };
        }
        let mut inside = self.state.long_running.lock();
        if self.is_draining() {
            return Err(Draining);
        }
        let id = inside.next;
        inside.next += 1;
        let slot = Arc::new(Slot::default());
        inside.inside.insert(id, slot.clone());
        Ok(InFlightGuard { state, long_running: Some((id, slot)) })
    }

    /// Requests inside that are not long-running.
    pub fn requests(&self) -> usize {
        self.state.requests.load(Ordering::Acquire) & !DRAINING
    }

    /// Long-running requests inside.
    pub fn long_running(&self) -> usize {
        self.state.long_running.lock().inside.len()
    }

    fn is_draining(&self) -> bool {
        self.state.requests.load(Ordering::Acquire) & DRAINING != 0
    }

    /// Lets no request in any more and waits until those inside have ended.
    pub async fn drain_requests(&self) {
        self.close();
        self.wait(|| self.requests() == 0).await;
    }

    /// Lets no request in any more and ends the long-running requests: all at once if there is no `grace`, else one after the
    /// other, so that their clients do not storm the other servers, and waits for them until the time is up.
    pub async fn end_long_running(&self, grace: Duration) {
        self.close();
        let slots: Vec<_> = self.state.long_running.lock().inside.values().cloned().collect();
        if grace.is_zero() {
            for slot in &slots {
                slot.end();
            }
            return;
        }
        let per_second = (slots.len() as f64 / grace.as_secs_f64()).max(ENDINGS_PER_SECOND_MIN);
        let all = async {
            let start = tokio::time::Instant::now();
            for (index, slot) in slots.iter().enumerate() {
                let at = Duration::from_secs_f64(index as f64 / per_second);
                tokio::time::sleep_until(start + at).await;
                slot.end();
            }
            self.wait(|| self.long_running() == 0).await;
        };
        // What is left after that is cut off with its connection.
        let _ = tokio::time::timeout(grace, all).await;
    }

    fn close(&self) {
        // With the lock, so that no long-running request comes in after it was closed.
        let _inside = self.state.long_running.lock();
        self.state.requests.fetch_or(DRAINING, Ordering::AcqRel);
    }

    async fn wait(&self, done: impl Fn() -> bool) {
        loop {
            let mut left = pin!(self.state.left.notified());
            left.as_mut().enable();
            if done() {
                return;
            }
            left.await;
        }
    }
}

/// A few watches need no pacing.
const ENDINGS_PER_SECOND_MIN: f64 = 200.0;

/// A request is inside for as long as this lives.
pub struct InFlightGuard {
    state: Arc<State>,
    long_running: Option<(u64, Arc<Slot>)>,
}

impl InFlightGuard {
    /// Resolves when a long-running request should come to its end; for any other request, never.
    pub fn ending(&self) -> Ending {
        let slot = self.long_running.as_ref().map(|(_, slot)| slot.clone());
        Ending { slot, waiting: None }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        match &self.long_running {
            Some((id, _)) => {
                self.state.long_running.lock().inside.remove(id);
            }
            None => {
                self.state.requests.fetch_sub(1, Ordering::AcqRel);
            }
        }
        if self.state.requests.load(Ordering::Acquire) & DRAINING != 0 {
            self.state.left.notify_waiters();
        }
    }
}

impl Slot {
    fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// The future of [`InFlightGuard::ending`]. Cheap to poll with every event; one task at a time may wait for it.
pub struct Ending {
    slot: Option<Arc<Slot>>,
    /// The waker of the task that waits: registered once, not with every event.
    waiting: Option<Waker>,
}

impl Ending {
    /// Of a request that is not counted.
    pub(crate) fn never() -> Self {
        Self { slot: None, waiting: None }
    }
}

impl Future for Ending {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { slot: Some(slot), waiting } = &mut *self else { return Poll::Pending };
        if !waiting.as_ref().is_some_and(|waiting| waiting.will_wake(cx.waker())) {
            slot.waker.register(cx.waker());
            *waiting = Some(cx.waker().clone());
        }
        if slot.ended.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test]
    async fn draining_waits_for_requests_and_refuses_new_ones() {
        let in_flight = InFlight::default();
        let first = in_flight.enter(false).expect("open");
        let second = in_flight.enter(false).expect("open");
        assert_eq!(in_flight.requests(), 2);
        drop(second);

        let mut drained = Box::pin(in_flight.drain_requests());
        assert!(drained.as_mut().now_or_never().is_none(), "one is inside");
        assert_eq!(in_flight.enter(false).err(), Some(Draining));
        assert_eq!(in_flight.enter(true).err(), Some(Draining));
        assert_eq!(in_flight.requests(), 1, "who was refused does not count");
        drop(first);
        drained.await;
        assert_eq!(in_flight.requests(), 0);
    }

    #[tokio::test]
    async fn without_grace_watches_are_told_at_once() {
        let in_flight = InFlight::default();
        let watch = in_flight.enter(true).expect("open");
        let request = in_flight.enter(false).expect("open");
        let mut ending = watch.ending();
        assert!((&mut ending).now_or_never().is_none());
        in_flight.end_long_running(Duration::ZERO).await;
        assert!((&mut ending).now_or_never().is_some());
        assert!(request.ending().now_or_never().is_none(), "requests end by themselves");
        drop(watch);
        assert_eq!((in_flight.long_running(), in_flight.requests()), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn with_grace_watches_end_one_after_the_other() {
        let cases = [(1, 10.0, 0.0), (400, 10.0, 2.0), (4000, 10.0, 10.0)];
        for (watches, grace, expected) in cases {
            let in_flight = InFlight::default();
            let start = Instant::now();
            let running: Vec<_> = (0..watches)
                .map(|_| {
                    let guard = in_flight.enter(true).expect("open");
                    tokio::spawn(async move {
                        guard.ending().await;
                        start.elapsed().as_secs_f64()
                    })
                })
                .collect();
            in_flight.end_long_running(Duration::from_secs_f64(grace)).await;
            let mut last = 0.0_f64;
            for watch in running {
                last = last.max(watch.await.expect("no panic"));
            }
            assert!((last - expected).abs() < 0.1, "{watches} watches: {last} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_does_not_end_is_waited_for_no_longer_than_the_grace() {
        let in_flight = InFlight::default();
        let _stubborn = in_flight.enter(true).expect("open");
        let start = Instant::now();
        in_flight.end_long_running(Duration::from_secs(7)).await;
        assert_eq!(start.elapsed().as_secs(), 7);
    }
}
