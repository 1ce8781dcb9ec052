//! The streams of one HTTP/2 connection, driven by the connection's own task.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use parking_lot::Mutex;

type Stream = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Default)]
pub(super) struct Streams {
    running: FuturesUnordered<Stream>,
    new: Arc<Mutex<Vec<Stream>>>,
}

impl Streams {
    pub(super) fn spawner(&self) -> Spawner {
        Spawner(self.new.clone())
    }

    pub(super) fn has_new(&self) -> bool {
        !self.new.lock().is_empty()
    }

    /// Polls every stream that has something to do, once or a little more often.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) {
        self.running.extend(self.new.lock().drain(..));
        while let Poll::Ready(Some(())) = self.running.poll_next_unpin(cx) {}
    }
}

/// What the HTTP/2 library starts its streams with. They wait here until the connection was polled.
#[derive(Clone)]
pub(super) struct Spawner(Arc<Mutex<Vec<Stream>>>);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Spawner {
    fn execute(&self, stream: F) {
        // One stream's panic must not take its neighbours with it. The library resets a stream that is dropped.
        let stream = AssertUnwindSafe(stream).catch_unwind().map(|ended| {
            if ended.is_err() {
                tracing::error!("a request panicked");
            }
        });
        self.0.lock().push(Box::pin(stream));
    }
}
