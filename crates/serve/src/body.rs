//! The body of a response: bytes that are there, chunks made on demand, or events as they happen.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use codec::gzip::GzipWriter;
use futures_core::Stream;
use http_body::{Frame, SizeHint};
use hyper::upgrade::{OnUpgrade, Upgraded};
use prometheus::Histogram;
use tokio::time::Instant;

use crate::connection::sending::Sending;
use crate::cpu_pool::{CpuPool, Pooled};
use crate::take_over::TakeOver;

/// What may go wrong while a body is sent; the client then sees a reset stream or a cut connection.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A response body. Nothing is produced before the connection asks for it, so a slow client costs one chunk.
#[derive(Default)]
pub struct Body {
    source: Source,
    /// What must live as long as the response is being sent: seats, counters, snapshots.
    guards: Vec<Box<dyn Any + Send>>,
    /// When the last byte has to be sent, if there is such a time.
    send_by: Option<Instant>,
    /// Records how far the client has read.
    sending: Option<Arc<Sending>>,
    /// The metric that gets the length at the end, and the bytes so far.
    measured: Option<(Histogram, u64)>,
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Some((histogram, bytes)) = &self.measured {
            histogram.observe(*bytes as f64);
        }
    }
}

#[derive(Default)]
pub(crate) enum Source {
    #[default]
    Empty,
    Full(Bytes),
    Chunks(Chunks),
    /// Chunks that take long to make.
    Pooled(PooledChunks),
    Events(Events),
    ProxiedBody(ProxiedBody),
    /// The connection is the handler's after a 101.
    TakeOver(TakeOver),
}

/// The body of another server, until it or something else ends it.
pub(crate) struct ProxiedBody {
    body: Pin<Box<dyn http_body::Body<Data = Bytes, Error = BoxError> + Send>>,
    end: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl ProxiedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(end) = &mut self.end
            && end.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(None);
        }
        self.body.as_mut().poll_frame(cx)
    }
}

/// Events as they come, until something else does. Polled with every event of every watcher, so it is one thing and not
/// several around each other.
pub(crate) struct Events {
    stream: Pin<Box<dyn Stream<Item = Bytes> + Send>>,
    end: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Events {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(end) = &mut self.end
            && end.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(None);
        }
        self.stream.as_mut().poll_next(cx)
    }
}

/// Chunks that are produced as they are sent.
pub(crate) struct Chunks {
    /// Already produced, because compression had to look at the beginning.
    pub(crate) ready: VecDeque<Bytes>,
    pub(crate) rest: Box<dyn ChunkSource>,
}

/// Makes the chunks of a body one after the other.
pub trait ChunkSource: Send {
    fn next_chunk(&mut self) -> Option<Result<Bytes, BoxError>>;

    /// Compresses about as much as the next chunk; `None` after the end. A source that has its chunks compressed already
    /// writes those. Chunks are not asked for afterwards.
    fn compress_next(&mut self, gzip: &mut GzipWriter) -> Option<Result<(), BoxError>> {
        let chunk = self.next_chunk()?;
        Some(chunk.map(|chunk| gzip.write(&chunk)))
    }
}

impl<I: Iterator<Item = Result<Bytes, BoxError>> + Send> ChunkSource for I {
    fn next_chunk(&mut self) -> Option<Result<Bytes, BoxError>> {
        self.next()
    }
}

impl Body {
    /// No bytes at all.
    pub fn empty() -> Self {
        Self::default()
    }

    /// All bytes, already there.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self::of(if bytes.is_empty() { Source::Empty } else { Source::Full(bytes) })
    }

    /// Chunks pulled one at a time, each when the one before is on its way (LIST). An error ends the response abruptly.
    pub fn chunks<I>(chunks: I) -> Self
    where
        I: IntoIterator<Item = Result<Bytes, BoxError>>,
        I::IntoIter: Send + 'static,
    {
        Self::chunks_of(Box::new(chunks.into_iter()))
    }

    /// The same from a source that may have them compressed.
    pub fn chunks_of(rest: Box<dyn ChunkSource>) -> Self {
        Self::of(Source::Chunks(Chunks { ready: VecDeque::new(), rest }))
    }

    /// The same for chunks that take long to make (tables, compression): each is made on the pool, so
    /// that the other streams of the connection go on meanwhile.
    pub fn pooled_chunks<I>(chunks: I, pool: CpuPool) -> Self
    where
        I: IntoIterator<Item = Result<Bytes, BoxError>>,
        I::IntoIter: Send + 'static,
    {
        Self::pooled_chunks_of(Box::new(chunks.into_iter()), pool)
    }

    /// The same from a source that may have them compressed.
    pub fn pooled_chunks_of(rest: Box<dyn ChunkSource>, pool: CpuPool) -> Self {
        let chunks = Chunks { ready: VecDeque::new(), rest };
        Self::of(Source::Pooled(PooledChunks::new(Box::new(chunks), pool)))
    }

    /// Events sent as they come (WATCH, logs): each item is flushed at once and never compressed.
    pub fn events<S>(events: S) -> Self
    where
        S: Stream<Item = Bytes> + Send + 'static,
    {
        Self::of(Source::Events(Events { stream: Box::pin(events), end: None }))
    }

    /// The body of another server, passed through frame by frame (proxies).
    pub fn foreign<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let body = Box::pin(MapError(Box::pin(body)));
        Self::of(Source::ProxiedBody(ProxiedBody { body, end: None }))
    }

    /// The body of a 101: `run` gets the connection once the response is sent. What the response holds
    /// (counters, audit) is held until it returns, or until the server asks long-running requests to
    /// end, which drops it.
    ///
    /// `connection` is `hyper::upgrade::on` of the request.
    pub fn take_over<R, F>(connection: OnUpgrade, run: R) -> Self
    where
        R: FnOnce(Upgraded) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let run = Box::new(|upgraded| Box::pin(run(upgraded)) as _);
        Self::of(Source::TakeOver(TakeOver { connection, run, end: None }))
    }

    pub(crate) fn of(source: Source) -> Self {
        Self { source, guards: Vec::new(), send_by: None, sending: None, measured: None }
    }

    /// Gives the client until then to read it all; the response is cut off otherwise.
    pub(crate) fn set_send_by(&mut self, send_by: Instant) {
        self.send_by = Some(send_by);
    }

    pub(crate) fn send_by(&self) -> Option<Instant> {
        self.send_by
    }

    /// Reports every chunk to `sending`.
    pub(crate) fn record_progress_in(&mut self, sending: Arc<Sending>) {
        self.sending = Some(sending);
    }

    /// Observes the number of bytes sent in `histogram` at the end.
    pub(crate) fn measure(&mut self, histogram: Histogram) {
        self.measured = Some((histogram, 0));
    }

    /// Keeps `guard` until the last byte was handed over or the client is gone, whichever is first.
    pub fn hold(&mut self, guard: impl Any + Send) {
        self.guards.push(Box::new(guard));
    }

    /// The bytes, when all of them are there.
    pub fn as_bytes(&self) -> Option<&Bytes> {
        match &self.source {
            Source::Full(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Lets events, bodies of other servers and connections that were taken over end when `end` comes;
    /// other bodies have an end of their own.
    #[must_use]
    pub fn until(mut self, end: impl Future<Output = ()> + Send + 'static) -> Self {
        match &mut self.source {
            Source::Events(events) => events.end = Some(Box::pin(end)),
            Source::ProxiedBody(foreign) => foreign.end = Some(Box::pin(end)),
            Source::TakeOver(take_over) => take_over.end = Some(Box::pin(end)),
            _ => {}
        }
        self
    }

    /// What is to be done with the connection; the guards stay with the body.
    pub(crate) fn take_take_over(&mut self) -> Option<TakeOver> {
        match std::mem::take(&mut self.source) {
            Source::TakeOver(take_over) => Some(take_over),
            other => {
                self.source = other;
                None
            }
        }
    }

    pub(crate) fn take_source(&mut self) -> Source {
        std::mem::take(&mut self.source)
    }

    /// The same guards around another source.
    pub(crate) fn set_source(&mut self, source: Source) {
        self.source = source;
    }

    fn poll_source(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let next = match &mut self.source {
            Source::Empty | Source::TakeOver(_) => None,
            Source::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                self.source = Source::Empty;
                Some(Ok(bytes))
            }
            Source::Chunks(chunks) => chunks.next_chunk(),
            Source::Pooled(chunks) => std::task::ready!(chunks.poll_next(cx)),
            Source::Events(events) => std::task::ready!(events.poll_next(cx)).map(Ok),
            Source::ProxiedBody(foreign) => return foreign.poll_frame(cx),
        };
        Poll::Ready(next.map(|chunk| chunk.map(Frame::data)))
    }
}

/// Chunks that are made on the pool, one at a time. Dropping it stops the one that is being made.
pub(crate) struct PooledChunks {
    pool: CpuPool,
    state: Making,
}

type BoxChunks = Box<dyn ChunkSource>;

enum Making {
    Idle(BoxChunks),
    Running(Pooled<(BoxChunks, Option<Result<Bytes, BoxError>>)>),
    Done,
}

impl PooledChunks {
    pub(crate) fn new(chunks: BoxChunks, pool: CpuPool) -> Self {
        Self { pool, state: Making::Idle(chunks) }
    }

    /// The chunks, unless one is being made.
    pub(crate) fn into_chunks(self) -> Option<BoxChunks> {
        match self.state {
            Making::Idle(chunks) => Some(chunks),
            Making::Running(_) | Making::Done => None,
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        loop {
            match std::mem::replace(&mut self.state, Making::Done) {
                Making::Done => return Poll::Ready(None),
                Making::Idle(mut chunks) => {
                    let running = self.pool.compute(move || {
                        let chunk = chunks.next_chunk();
                        (chunks, chunk)
                    });
                    self.state = Making::Running(running);
                }
                Making::Running(mut running) => {
                    let Poll::Ready((chunks, chunk)) = Pin::new(&mut running).poll(cx) else {
                        self.state = Making::Running(running);
                        return Poll::Pending;
                    };
                    if matches!(chunk, Some(Ok(_))) {
                        self.state = Making::Idle(chunks);
                    }
                    return Poll::Ready(chunk);
                }
            }
        }
    }
}

impl ChunkSource for Chunks {
    fn next_chunk(&mut self) -> Option<Result<Bytes, BoxError>> {
        loop {
            let chunk = match self.ready.pop_front() {
                Some(chunk) => Ok(chunk),
                None => self.rest.next_chunk()?,
            };
            // An empty DATA frame would only cost the client something.
            if matches!(&chunk, Ok(bytes) if bytes.is_empty()) {
                continue;
            }
            return Some(chunk);
        }
    }

    fn compress_next(&mut self, gzip: &mut GzipWriter) -> Option<Result<(), BoxError>> {
        let Some(chunk) = self.ready.pop_front() else { return self.rest.compress_next(gzip) };
        gzip.write(&chunk);
        Some(Ok(()))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // A chunk is made long after the handler has returned, so its panic is caught here: it costs
        // this response and not the connection's task, which serves others too.
        let polled = catch_unwind(AssertUnwindSafe(|| self.poll_source(cx)));
        let polled = polled.unwrap_or_else(|_| {
            tracing::error!("a response panicked while it was sent");
            Poll::Ready(Some(Err("panicked".into())))
        });
        if let Some(sending) = &self.sending {
            sending.asked(polled.is_ready());
        }
        let frame = std::task::ready!(polled);
        if let (Some((_, bytes)), Some(Ok(frame))) = (&mut self.measured, &frame) {
            *bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
        }
        if !matches!(frame, Some(Ok(_))) {
            // Ended or broken: there is nothing left to produce, so nothing is held any longer.
            self.source = Source::Empty;
            self.guards.clear();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Empty | Source::TakeOver(_) => true,
            Source::ProxiedBody(foreign) => foreign.body.is_end_stream(),
            _ => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Empty | Source::TakeOver(_) => SizeHint::with_exact(0),
            Source::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::ProxiedBody(foreign) => foreign.body.size_hint(),
            Source::Chunks(_) | Source::Pooled(_) | Source::Events(_) => SizeHint::default(),
        }
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self::full(bytes)
    }
}

/// Gives a foreign body our error type.
struct MapError<B>(Pin<Box<B>>);

impl<B> http_body::Body for MapError<B>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.as_mut().poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body::Body as _;
    use http_body_util::BodyExt;

    use super::*;

    /// As sources of chunks give it.
    #[expect(clippy::unnecessary_wraps)]
    fn chunk(text: &'static str) -> Result<Bytes, BoxError> {
        Ok(Bytes::from_static(text.as_bytes()))
    }

    async fn text(body: Body) -> String {
        let bytes = body.collect().await.expect("no chunk is an error").to_bytes();
        String::from_utf8(bytes.to_vec()).expect("tests send text")
    }

    #[tokio::test]
    async fn every_kind_of_body_gives_its_bytes_and_its_length() {
        let cases = [
            (Body::empty(), Some(0), ""),
            (Body::full(""), Some(0), ""),
            (Body::from("abc"), Some(3), "abc"),
            (Body::chunks([chunk("ab"), chunk(""), chunk("c")]), None, "abc"),
            (Body::events(futures_util::stream::iter(["a".into(), "b".into()])), None, "ab"),
            (Body::foreign(http_body_util::Full::new(Bytes::from_static(b"far"))), Some(3), "far"),
        ];
        for (body, length, expected) in cases {
            assert_eq!(body.size_hint().exact(), length, "length of {expected:?}");
            assert_eq!(text(body).await, expected);
        }
    }

    #[tokio::test]
    async fn chunks_are_made_only_when_asked_for() {
        let made = Arc::new(AtomicUsize::new(0));
        let counter = made.clone();
        let mut body = Body::chunks((0..10).map(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            chunk("x")
        }));
        assert_eq!(made.load(Ordering::Relaxed), 0);
        body.frame().await.expect("ten chunks").expect("no error");
        body.frame().await.expect("ten chunks").expect("no error");
        assert_eq!(made.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn long_chunks_are_made_on_the_pool() {
        let pool = CpuPool::start(1).expect("a thread");
        let thread = || std::thread::current().name().unwrap_or_default().to_owned();
        let chunks = (0..3).map(move |_| Ok(Bytes::from(format!("{} ", thread()))));
        let body = Body::pooled_chunks(chunks, pool.clone());
        assert_eq!(text(body).await, "pintle-cpu-0 pintle-cpu-0 pintle-cpu-0 ");
        let broken =
            Body::pooled_chunks([chunk("a"), Err("gone".into()), chunk("b")], pool.clone());
        assert!(broken.collect().await.is_err());
        let mut panicking = Body::pooled_chunks((0..1).map(|_| panic!("asked for")), pool);
        assert!(panicking.frame().await.expect("an error").is_err());
        assert!(panicking.frame().await.is_none());
    }

    #[tokio::test]
    async fn guards_go_at_the_end_at_an_error_and_with_the_body() {
        let held = Arc::new(());
        let holding = |mut body: Body| {
            body.hold(held.clone());
            body
        };

        let mut ended = holding(Body::from("x"));
        ended.frame().await.expect("one frame").expect("no error");
        assert_eq!(Arc::strong_count(&held), 2, "the last bytes are still on their way");
        assert!(ended.frame().await.is_none());
        assert_eq!(Arc::strong_count(&held), 1);

        let mut broken = holding(Body::chunks([Err("store is gone".into())]));
        assert!(broken.frame().await.expect("one frame").is_err());
        assert_eq!(Arc::strong_count(&held), 1);
        assert!(broken.frame().await.is_none());

        drop(holding(Body::events(futures_util::stream::pending())));
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
