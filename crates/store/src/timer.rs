//! A timer that is polled far more often than it fires.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// Fires once. A watcher polls its timers with every event; the underlying [`Sleep`] is polled only
/// with a new waker or after it has elapsed.
pub struct Timer {
    sleep: Pin<Box<Sleep>>,
    /// The waker that is registered with `sleep`.
    waiting: Option<Waker>,
}

impl Timer {
    pub fn new(after: Duration) -> Self {
        Self { sleep: Box::pin(sleep(after)), waiting: None }
    }

    pub fn reset(&mut self, after: Duration) {
        self.sleep.as_mut().reset(Instant::now() + after);
        self.waiting = None;
    }

    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let known = self.waiting.as_ref().is_some_and(|waiting| waiting.will_wake(cx.waker()));
        if known && !self.sleep.is_elapsed() {
            return Poll::Pending;
        }
        let polled = self.sleep.as_mut().poll(cx);
        self.waiting = polled.is_pending().then(|| cx.waker().clone());
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_timer_fires_in_time_however_often_it_is_polled() {
        let second = Duration::from_secs(1);
        let mut timer = Timer::new(second);
        let began = Instant::now();
        for _ in 0..2 {
            let mut asked = 0;
            poll_fn(|cx| {
                asked += 1;
                // The second poll has the same waker.
                let _ = timer.poll(cx);
                timer.poll(cx)
            })
            .await;
            assert_eq!(asked, 2, "only woken when it is time");
            timer.reset(second);
        }
        assert_eq!(began.elapsed(), 2 * second);
        // Another task waits for it later.
        let waited = tokio::spawn(async move { poll_fn(|cx| timer.poll(cx)).await });
        waited.await.expect("it goes off");
        assert_eq!(began.elapsed(), 3 * second);
    }
}
