//! How a response gets on with its client: one that reads nothing is given up, on HTTP/2 without
//! its connection.
//!
//! The HTTP/2 library polls a body only while the client's window is open, so neither the
//! body nor its watcher notices a client that reads nothing. The stream does, with this.

use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Written by the body of a response, read by its stream.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    /// Twice the number of chunks that were handed over; one more while the next is being made.
    chunks: AtomicU64,
    /// Set when the response is ready: when it has to be sent at last, if there is such a time.
    send_by: OnceLock<Option<Instant>>,
}

/// The last chunk is on its way, or the next is being made and not waited for by the client.
const BEING_MADE: u64 = 1;

impl Sending {
    /// The response is ready, from here on its client is waited for.
    pub(crate) fn begin(&self, send_by: Option<Instant>) {
        let _ = self.send_by.set(send_by);
    }

    /// The body was asked for a chunk and had one, or will have it later.
    pub(crate) fn asked(&self, has_chunk: bool) {
        // Only the body writes, so this need not be one instruction.
        let before = self.chunks.load(Ordering::Relaxed);
        let now = if has_chunk { (before | BEING_MADE) + 1 } else { before | BEING_MADE };
        if now != before {
            self.chunks.store(now, Ordering::Relaxed);
        }
    }

    /// Whether the stream is to be given up. Registers a timer with `cx` where there is something to
    /// wait for; to be called whenever the stream has nothing to do.
    pub(super) fn poll_given_up(
        &self,
        cx: &mut Context<'_>,
        clock: &mut Option<Clock>,
        stall_timeout: Duration,
    ) -> bool {
        let Some(send_by) = self.send_by.get() else { return false };
        let chunks = self.chunks.load(Ordering::Relaxed);
        let waits_for_client = chunks & BEING_MADE == 0;
        if send_by.is_none() && !waits_for_client {
            *clock = None;
            return false;
        }
        loop {
            let clock = clock.get_or_insert_with(|| Clock::new(chunks, *send_by, stall_timeout));
            if clock.sleep.as_mut().poll(cx).is_pending() {
                return false;
            }
            let late = send_by.is_some_and(|send_by| send_by <= Instant::now());
            if late || (waits_for_client && clock.chunks == chunks) {
                return true;
            }
            *clock = Clock::new(chunks, *send_by, stall_timeout);
        }
    }
}

/// Runs while a client is waited for.
pub(super) struct Clock {
    /// How many chunks there were when it was set.
    chunks: u64,
    sleep: Pin<Box<Sleep>>,
}

impl Clock {
    fn new(chunks: u64, send_by: Option<Instant>, stall_timeout: Duration) -> Self {
        let stalled = Instant::now() + stall_timeout;
        let at = send_by.map_or(stalled, |send_by| send_by.min(stalled));
        Self { chunks, sleep: Box::pin(sleep_until(at)) }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use super::*;

    const STALL: Duration = Duration::from_mins(1);

    /// When a stream is given up, `None`: not within an hour. `steps` are what the body does, and
    /// after how many seconds.
    async fn given_up(send_by: Option<u64>, steps: &[(u64, bool)]) -> Option<u64> {
        let began = Instant::now();
        let sending = Sending::default();
        sending.begin(send_by.map(|seconds| began + Duration::from_secs(seconds)));
        let mut clock = None;
        let stream = async {
            poll_fn(|cx| {
                let given_up = sending.poll_given_up(cx, &mut clock, STALL);
                if given_up { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        };
        let body = async {
            for (at, has_chunk) in steps {
                tokio::time::sleep_until(began + Duration::from_secs(*at)).await;
                sending.asked(*has_chunk);
            }
            std::future::pending::<()>().await;
        };
        // `select!` polls both whenever one of them is woken, as a connection does.
        let both = async {
            tokio::select! { biased; () = body => {}, () = stream => {} }
        };
        let ended = tokio::time::timeout(Duration::from_hours(1), both).await;
        ended.ok().map(|()| began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_given_up() {
        type Case<'a> = (&'a str, Option<u64>, &'a [(u64, bool)], Option<u64>);
        let cases: [Case<'_>; 6] = [
            ("nothing is read", None, &[], Some(60)),
            ("nothing is read, and the time is up before", Some(20), &[], Some(20)),
            ("a watch without events", None, &[(0, false)], None),
            ("a watch whose events are not read", None, &[(0, false), (100, true)], Some(160)),
            ("a slow reader", Some(500), &[(50, true), (100, true), (150, true)], Some(240)),
            ("a body that makes no chunk", Some(90), &[(0, true), (1, false)], Some(90)),
        ];
        for (what, send_by, steps, expected) in cases {
            assert_eq!(given_up(send_by, steps).await, expected, "{what}");
        }
    }
}
