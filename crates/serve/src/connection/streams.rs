//! The streams of one HTTP/2 connection, driven by the connection's own task.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;

use super::sending::Sending;

type Stream = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(super) struct Streams {
    running: FuturesUnordered<Stream>,
    new: Arc<NewStreams>,
    bell: Arc<StreamWaker>,
    /// Rings the bell.
    waker: Waker,
}

/// Streams that the library has started and the connection has not polled yet.
#[derive(Default)]
struct NewStreams {
    streams: Mutex<Vec<Stream>>,
    /// Of the stream that the library starts next: it calls the service, then the executor.
    sending: Mutex<Option<Arc<Sending>>>,
    /// A stream whose client takes nothing for so long is reset.
    stall_timeout: Duration,
}

impl Streams {
    pub(super) fn new(stall_timeout: Duration) -> Self {
        let bell = Arc::<StreamWaker>::default();
        let waker = bell.clone().into();
        let new = Arc::new(NewStreams { stall_timeout, ..NewStreams::default() });
        Self { running: FuturesUnordered::new(), new, bell, waker }
    }

    pub(super) fn spawner(&self) -> Spawner {
        Spawner(self.new.clone())
    }

    pub(super) fn has_new(&self) -> bool {
        !self.new.streams.lock().is_empty()
    }

    /// Polls every stream that has something to do, once or a little more often.
    ///
    /// A stream that has sent something has woken itself by that, and the set of streams makes a pause when two of them
    /// did. An event for a hundred watches would leave in fifty turns of the connection, so the pause is not made here.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) {
        self.running.extend(self.new.streams.lock().drain(..));
        for _ in 0..=self.running.len() {
            self.bell.listen();
            let mut within = Context::from_waker(&self.waker);
            while let Poll::Ready(Some(())) = self.running.poll_next_unpin(&mut within) {}
            if !self.bell.leave(cx.waker()) {
                return;
            }
        }
        // The connection has its turn as well.
        cx.waker().wake_by_ref();
    }
}

/// The waker of the streams. It wakes the task that polls them, or else the connection's.
#[derive(Default)]
struct StreamWaker {
    rung: AtomicBool,
    task: AtomicWaker,
}

impl StreamWaker {
    fn listen(&self) {
        drop(self.task.take());
        self.rung.store(false, Ordering::Release);
    }

    /// Whether it has rung meanwhile. From now on it wakes the task.
    fn leave(&self, task: &Waker) -> bool {
        self.task.register(task);
        self.rung.load(Ordering::Acquire)
    }
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.task.wake();
    }
}

/// What the HTTP/2 library starts its streams with. They wait here until the connection was polled.
#[derive(Clone)]
pub(super) struct Spawner(Arc<NewStreams>);

impl Spawner {
    /// To be called for each request, before its stream is started.
    pub(super) fn begin(&self) -> Arc<Sending> {
        let sending = Arc::<Sending>::default();
        *self.0.sending.lock() = Some(sending.clone());
        sending
    }
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Spawner {
    fn execute(&self, stream: F) {
        let sending = self.0.sending.lock().take().unwrap_or_default();
        let stall_timeout = self.0.stall_timeout;
        // The library resets a stream that is dropped.
        let stream = async move {
            let (mut stream, mut clock) = (pin!(stream), None);
            poll_fn(|cx| {
                // One stream's panic must not take its neighbours with it.
                let polled = catch_unwind(AssertUnwindSafe(|| stream.as_mut().poll(cx)));
                let Ok(polled) = polled else {
                    tracing::error!("a request panicked");
                    return Poll::Ready(());
                };
                if polled.is_pending() && sending.poll_given_up(cx, &mut clock, stall_timeout) {
                    tracing::debug!("reset a stream whose client does not read");
                    return Poll::Ready(());
                }
                polled
            })
            .await;
        };
        self.0.streams.lock().push(Box::pin(stream));
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;

    use hyper::rt::Executor as _;

    use super::*;

    /// Fifty turns were needed where one is enough.
    #[tokio::test]
    async fn streams_that_wake_themselves_all_have_their_turn_at_once() {
        let mut streams = Streams::new(Duration::from_mins(1));
        let sent = Arc::new(AtomicUsize::new(0));
        for _ in 0..100 {
            let sent = sent.clone();
            let mut first = true;
            streams.spawner().execute(poll_fn(move |cx| {
                if std::mem::take(&mut first) {
                    sent.fetch_add(1, Ordering::Relaxed);
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            }));
        }
        poll_fn(|cx| {
            streams.poll(cx);
            Poll::Ready(())
        })
        .await;
        assert_eq!(sent.load(Ordering::Relaxed), 100);
    }

    #[tokio::test]
    async fn a_stream_that_is_woken_wakes_the_connection() {
        let mut streams = Streams::new(Duration::from_mins(1));
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        streams.spawner().execute(async move {
            let _ = receiver.await;
            seen.store(true, Ordering::Relaxed);
        });
        let mut sender = Some(sender);
        poll_fn(|cx| {
            streams.poll(cx);
            if let Some(sender) = sender.take() {
                tokio::spawn(async move { sender.send(()) });
            }
            if done.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// One that never has enough leaves the connection its turn.
    #[tokio::test]
    async fn a_stream_that_wakes_itself_for_ever_does_not_keep_the_connection() {
        let mut streams = Streams::new(Duration::from_mins(1));
        streams.spawner().execute(poll_fn(|cx: &mut Context<'_>| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        }));
        let mut turns = 0;
        poll_fn(|cx| {
            streams.poll(cx);
            turns += 1;
            if turns == 3 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
