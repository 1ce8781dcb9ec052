//! One connection: its peer, requests in, responses out, and when it ends.
//!
//! All streams of an HTTP/2 connection are driven by the task of the connection itself. The streams share one lock inside the
//! HTTP/2 library; driven from one task it is never contended, and the events of a hundred watches leave in one write.

mod activity;
mod gather;
mod linger;
pub(crate) mod sending;
mod streams;
mod turns;
mod wire;

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::BoxFuture;
use futures_util::task::AtomicWaker;
use http::header::{CONNECTION, CONTENT_TYPE, EXPECT, HOST, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::server::TlsStream;

use self::activity::{Activity, Deadline};
use self::gather::{Outgoing, gather};
use self::linger::{lend, linger};
use self::sending::Sending;
use self::streams::Streams;
use self::turns::{Turn, Turns};
use self::wire::Wire;
use crate::body::Body;
use crate::tls::{ClientCert, PeerIdentity, Tls};
use crate::{take_over, websocket};

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// The future is dropped when the client gives up, so what must not be left half done belongs in a task of its own.
    fn handle(&self, request: Request<Incoming>, peer: Arc<Peer>) -> HandlerFuture;
}

/// A response to be.
pub type HandlerFuture = BoxFuture<'static, Response<Body>>;

/// The other end of a connection.
pub struct Peer {
    /// Where the client is.
    pub address: SocketAddr,
    /// Where it connected to.
    pub local_address: SocketAddr,
    /// What the handshake agreed on; absent in processes and tests.
    pub tls: Option<TlsSession>,
    client: Option<ClientCert>,
    /// The same certificate, verified against the CAs of front proxies.
    front_proxy: Option<ClientCert>,
    close: Arc<Closer>,
}

/// What the handshake agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSession {
    pub version: Option<rustls::ProtocolVersion>,
    pub cipher_suite: Option<rustls::CipherSuite>,
    /// The name the client asked for.
    pub server_name: Option<String>,
    pub http2: bool,
}

impl Peer {
    /// A peer without a connection: the server talking to itself, or a test.
    pub fn detached(address: SocketAddr) -> Self {
        let close = Arc::new(Closer::default());
        Self { address, local_address: address, tls: None, client: None, front_proxy: None, close }
    }

    /// A client in the own process, which is who these certificates say.
    pub(crate) fn in_process(
        certificates: Vec<CertificateDer<'static>>,
        tls: &Tls,
        close: Arc<Closer>,
    ) -> Self {
        let client = Some(ClientCert::new(certificates, tls.client_roots().clone()));
        Self { client, close, ..Self::detached(SocketAddr::from(([127, 0, 0, 1], 0))) }
    }

    /// A peer that has shown these certificates.
    #[cfg(test)]
    pub(crate) fn with_certificates(
        chain: Vec<CertificateDer<'static>>,
        roots: crate::tls::Roots,
    ) -> Self {
        let roots = Arc::new(arc_swap::ArcSwap::from_pointee(roots));
        let client = Some(ClientCert::new(chain, roots));
        Self { client, ..Self::detached(SocketAddr::from(([127, 0, 0, 1], 1))) }
    }

    /// Who the client certificate says this is, as of now: the answer changes when the certificate expires or the CA bundle
    /// is replaced, even on an open connection. Cheap to ask with every request.
    pub fn identity(&self) -> Arc<PeerIdentity> {
        match &self.client {
            Some(client) => client.identity(SystemTime::now()),
            None => Arc::default(),
        }
    }

    /// The same for the CAs of front proxies: whether this client may name users in headers.
    pub fn front_proxy_identity(&self) -> Arc<PeerIdentity> {
        match &self.front_proxy {
            Some(client) => client.identity(SystemTime::now()),
            None => Arc::default(),
        }
    }

    /// The certificates the client showed, leaf first, not verified.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        self.client.as_ref().map_or(&[], |client| &client.chain)
    }

    /// Ends the connection after the requests that are running: GOAWAY for HTTP/2, else `Connection: close`.
    pub fn close(&self) {
        self.close.close();
    }

    fn new(stream: &TlsStream<TcpStream>, close: Arc<Closer>, tls: &Tls) -> std::io::Result<Self> {
        let (tcp, session) = stream.get_ref();
        let chain = session.peer_certificates().map(<[_]>::to_vec).unwrap_or_default();
        let chain = chain.into_iter().map(CertificateDer::into_owned).collect::<Vec<_>>();
        let roots = tls.client_roots().clone();
        Ok(Self {
            address: canonical(tcp.peer_addr()?),
            local_address: canonical(tcp.local_addr()?),
            tls: Some(TlsSession {
                version: session.protocol_version(),
                cipher_suite: session.negotiated_cipher_suite().map(|suite| suite.suite()),
                server_name: session.server_name().map(str::to_owned),
                http2: session.alpn_protocol() == Some(b"h2"),
            }),
            front_proxy: (!chain.is_empty() && tls.has_request_header_ca())
                .then(|| ClientCert::new(chain.clone(), tls.request_header_roots().clone())),
            client: (!chain.is_empty()).then(|| ClientCert::new(chain, roots)),
            close,
        })
    }
}

/// A dual-stack socket shows IPv4 clients as IPv6 addresses; logs show them as IPv4.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// A request to end a connection.
#[derive(Default)]
pub(crate) struct Closer {
    requested: AtomicBool,
    waker: AtomicWaker,
}

impl Closer {
    pub(crate) fn close(&self) {
        self.requested.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Only the task of the connection may wait.
    pub(crate) fn poll_requested(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_requested() {
            return Poll::Ready(());
        }
        self.waker.register(cx.waker());
        if self.is_requested() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }
}

/// How much a connection may take, in time and in memory. The defaults are kube-apiserver's, where it has one.
#[derive(Debug, Clone)]
pub struct Limits {
    /// For the TLS handshake.
    pub handshake_timeout: Duration,
    /// For the header of a request, from its first byte (of the first request: from the end of the handshake).
    pub header_timeout: Duration,
    /// For the client's first HTTP/2 bytes.
    pub preface_timeout: Duration,
    /// How long a connection without requests is kept.
    pub idle_timeout: Duration,
    /// How long a closing connection waits for the client to agree.
    pub linger_timeout: Duration,
    /// A client that is still sending a request that was answered is listened to until it pauses for this long.
    pub linger_quiet_timeout: Duration,
    /// Bytes of such a request that are discarded before the connection is closed.
    pub linger_bytes_max: usize,
    /// Connections that discard what their clients send, at a time; the next one is closed at once.
    pub lingering_max: usize,
    /// A connection, and a stream of HTTP/2, whose client reads nothing for this long is ended.
    pub stall_timeout: Duration,
    /// Pings find out about HTTP/2 clients that went away without a word.
    pub ping_interval: Duration,
    pub ping_timeout: Duration,
    /// Streams of one HTTP/2 connection at a time (`--http2-max-streams-per-connection`); the next one is refused.
    pub streams_max: u32,
    /// Open connections, those in their handshake included; the next one is closed at once.
    pub connections_max: usize,
    /// Streams of one HTTP/2 connection that the client has reset before they were accepted, and that were reset for a
    /// client's errors: more end the connection.
    pub resets_max: usize,
    /// Bytes of a request header, the request line included; more is answered with 431.
    pub header_bytes_max: usize,
    /// Lines of an HTTP/1.1 request header; more is answered with 431.
    pub header_lines_max: usize,
    /// Bytes an HTTP/2 stream may have waiting to be sent: times 100 streams, times connections.
    pub send_buffer_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_secs(32),
            header_timeout: Duration::from_secs(32),
            preface_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(90),
            linger_timeout: Duration::from_secs(5),
            linger_quiet_timeout: Duration::from_secs(1),
            linger_bytes_max: 16 << 20,
            lingering_max: 256,
            stall_timeout: Duration::from_mins(1),
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(20),
            streams_max: 100,
            connections_max: 32_768,
            resets_max: 400,
            header_bytes_max: 1 << 20,
            header_lines_max: 1000,
            send_buffer_bytes: 16 << 10,
        }
    }
}

/// What every connection of a server shares.
pub(crate) struct Service {
    pub(crate) tls: Arc<Tls>,
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) limits: Limits,
    /// One permit for each connection that lingers.
    lingering: Semaphore,
    turns: Arc<Turns>,
}

impl Service {
    pub(crate) fn new(tls: Arc<Tls>, handler: Arc<dyn Handler>, limits: Limits) -> Self {
        let lingering = Semaphore::new(limits.lingering_max);
        Self { tls, handler, limits, lingering, turns: Turns::new() }
    }
}

/// Serves requests until the client leaves, the time is up, or the connection is asked to close.
pub(crate) async fn serve(
    service: &Arc<Service>,
    stream: TlsStream<TcpStream>,
    close: Arc<Closer>,
) -> std::io::Result<()> {
    let peer = Arc::new(Peer::new(&stream, close, &service.tls)?);
    if peer.tls.as_ref().is_some_and(|tls| tls.http2) {
        serve_http2(service, stream, peer).await;
    } else {
        let activity = Arc::new(Activity::new(false, Turn::new(&service.turns)));
        let (stream, lender) = lend(stream, service);
        let ended = serve_http1(service, stream, peer, &activity).await;
        linger_if_sending(lender.returned(), ended, &activity, service).await;
    }
    Ok(())
}

async fn serve_http2(service: &Arc<Service>, stream: TlsStream<TcpStream>, peer: Arc<Peer>) {
    let activity = Arc::new(Activity::new(true, Turn::new(&service.turns)));
    let limits = &service.limits;
    let streams = Streams::new(limits.stall_timeout);
    let requests = service_fn({
        let (service, peer, activity) = (service.clone(), peer.clone(), activity.clone());
        let spawner = streams.spawner();
        move |request| {
            let sending = Some(spawner.begin());
            answer(service.clone(), request, peer.clone(), activity.clone(), sending)
        }
    });
    let (stream, outgoing) = gather(stream, activity.clone());
    let io = TokioIo::new(Wire::new(stream, activity.clone()));
    let connection = http2::Builder::new(streams.spawner())
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams_max)
        .max_pending_accept_reset_streams(limits.resets_max)
        .max_local_error_reset_streams(limits.resets_max)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(STREAM_WINDOW_BYTES.saturating_mul(limits.streams_max))
        .max_frame_size(STREAM_WINDOW_BYTES)
        .max_header_list_size(limits.header_bytes_max as u32 + HEADER_LIST_SLACK_BYTES)
        .max_send_buf_size(limits.send_buffer_bytes)
        .keep_alive_interval(limits.ping_interval)
        .keep_alive_timeout(limits.ping_timeout)
        .serve_connection(io, requests);
    let ended = drive(connection, streams, Some(&outgoing), &peer, &activity, limits).await;
    linger_if_sending(outgoing.into_stream(), ended, &activity, service).await;
}

/// Reads on for a while where the client may still be sending, so that it gets its answer.
async fn linger_if_sending(
    stream: Option<TlsStream<TcpStream>>,
    ended: Ended,
    activity: &Activity,
    service: &Service,
) {
    if let Some(stream) = stream
        && ended == Ended::InOrder
        && activity.may_be_sending()
    {
        linger(stream, service).await;
    }
}

/// Serves a client of the own process, whose stream is memory and needs no lingering.
pub(crate) async fn serve_in_process<S>(service: &Arc<Service>, stream: S, peer: Arc<Peer>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = Arc::new(Activity::new(false, Turn::new(&service.turns)));
    serve_http1(service, stream, peer, &activity).await;
}

/// Over any stream: those of other machines are TLS, those of the own process are memory.
async fn serve_http1<S>(
    service: &Arc<Service>,
    stream: S,
    peer: Arc<Peer>,
    activity: &Arc<Activity>,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &service.limits;
    let requests = service_fn({
        let (service, peer, activity) = (service.clone(), peer.clone(), activity.clone());
        move |request| answer(service.clone(), request, peer.clone(), activity.clone(), None)
    });
    let wire = Wire::new(stream, activity.clone()).checking_heads(limits.header_bytes_max);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // Compat: Go writes them so, and scripts look for them with their eyes.
        .title_case_headers(true)
        // Its timer would also run while the connection is idle; ours does not.
        .header_read_timeout(None)
        .max_headers(limits.header_lines_max)
        .max_header_size(limits.header_bytes_max + HEADER_SLACK_BYTES)
        .max_buf_size(limits.header_bytes_max + HEADER_SLACK_BYTES)
        .serve_connection(TokioIo::new(wire), requests)
        .with_upgrades();
    let streams = Streams::new(limits.stall_timeout);
    drive(connection, streams, None, &peer, activity, limits).await
}

/// Nearly all objects fit, so that most writes arrive in one frame.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// Compat: what Go's HTTP library allows on top of the limit.
const HEADER_SLACK_BYTES: usize = 4 << 10;
const HEADER_LIST_SLACK_BYTES: u32 = 320;

async fn answer(
    service: Arc<Service>,
    request: Request<Incoming>,
    peer: Arc<Peer>,
    activity: Arc<Activity>,
    // Of HTTP/2, where each stream is given up by itself.
    sending: Option<Arc<Sending>>,
) -> Result<Response<Body>, Infallible> {
    let active = activity.begin();
    let wants_upgrade = sending.is_none() && request.headers().contains_key(UPGRADE);
    activity.begin_body(wants_upgrade || !request.body().is_end_stream());
    if let Some(refused) = refuse_malformed(&request).or_else(|| refuse_expectation(&request)) {
        return Ok(refused);
    }
    let mut response = service.handler.handle(request, peer.clone()).await;
    // HTTP/2 has no such header; Go's library, and so the filters of kube-apiserver, mean GOAWAY by it.
    if sending.is_some()
        && response.headers_mut().remove(CONNECTION).is_some_and(|value| value == "close")
    {
        peer.close();
    }
    let send_by = response.body().send_by();
    match sending {
        Some(sending) => {
            sending.begin(send_by);
            response.body_mut().record_progress_in(sending);
        }
        None => active.send_by(send_by.map(Into::into)),
    }
    response.body_mut().hold(active);
    let response = take_over::hand_over(response);
    let mut response = websocket::change_over(response, service.limits.stall_timeout);
    // What the client has sent by now may be frames of the protocol that it did not get.
    if wants_upgrade && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

/// An HTTP/1.1 request must say once which host it is for, and how long it is in a way that all proxies parse alike; two
/// hosts or an unknown encoding are how a proxy in front is fooled.
fn refuse_malformed(request: &Request<Incoming>) -> Option<Response<Body>> {
    if request.version() != Version::HTTP_11 {
        return None;
    }
    let mut encodings = request.headers().get_all(TRANSFER_ENCODING).iter();
    let chunked =
        |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    let understood =
        encodings.next().is_none_or(|first| chunked(first) && encodings.next().is_none());
    let (code, problem) = match request.headers().get_all(HOST).iter().count() {
        _ if !understood => (StatusCode::NOT_IMPLEMENTED, "Unsupported transfer encoding"),
        0 => (StatusCode::BAD_REQUEST, "400 Bad Request: missing required Host header"),
        1 => return None,
        _ => (StatusCode::BAD_REQUEST, "400 Bad Request: too many Host headers"),
    };
    let mut response = Response::new(Body::from(problem));
    *response.status_mut() = code;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Some(response)
}

/// The one expectation that HTTP/1.1 knows is `100-continue`. Compat: Go refuses the others before any handler sees the
/// request, and not over HTTP/2.
fn refuse_expectation(request: &Request<Incoming>) -> Option<Response<Body>> {
    if request.version() > Version::HTTP_11 {
        return None;
    }
    let expected = request.headers().get(EXPECT)?.as_bytes().trim_ascii();
    let mut tokens = expected.split(|byte| b" \t,".contains(byte));
    let is_known = tokens.any(|token| token.eq_ignore_ascii_case(b"100-continue"));
    if expected.is_empty() || is_known {
        return None;
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::EXPECTATION_FAILED;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Some(response)
}

/// What hyper's connections have in common.
trait Connection: Future<Output = hyper::Result<()>> {
    fn graceful_shutdown(self: Pin<&mut Self>);
}

impl<I, S, E> Connection for http2::Connection<I, S, E>
where
    Self: Future<Output = hyper::Result<()>>,
    S: hyper::service::HttpService<Incoming>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    S::ResBody: 'static,
    <S::ResBody as http_body::Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    E: hyper::rt::bounds::Http2ServerConnExec<S::Future, S::ResBody>,
{
    fn graceful_shutdown(self: Pin<&mut Self>) {
        http2::Connection::graceful_shutdown(self);
    }
}

impl<I, S> Connection for http1::UpgradeableConnection<I, S>
where
    Self: Future<Output = hyper::Result<()>>,
    S: hyper::service::HttpService<Incoming>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    S::ResBody: 'static,
    <S::ResBody as http_body::Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn graceful_shutdown(self: Pin<&mut Self>) {
        http1::UpgradeableConnection::graceful_shutdown(self);
    }
}

/// Polls a connection and its streams to the end, and watches the clock. Streams that are still running at the end are
/// dropped, which cancels their handlers.
async fn drive(
    connection: impl Connection,
    mut streams: Streams,
    outgoing: Option<&Outgoing>,
    peer: &Peer,
    activity: &Activity,
    limits: &Limits,
) -> Ended {
    let mut connection = pin!(connection);
    let first = if activity.http2() { limits.preface_timeout } else { limits.header_timeout };
    let mut tick = pin!(tokio::time::sleep(first.min(limits.shortest())));
    let mut closing: Option<Instant> = None;
    let ended = poll_fn(|cx| {
        ready!(activity.turn().poll_begin(cx));
        let _running = activity.turn().run();
        loop {
            if closing.is_none() && peer.close.poll_requested(cx).is_ready() {
                let now = Instant::now();
                closing = Some(now);
                tick.as_mut().reset((now + limits.linger_timeout).into());
                connection.as_mut().graceful_shutdown();
            }
            // First what the streams have to say, then the connection, so that it leaves in one go.
            streams.poll(cx);
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(Some(ended));
            }
            if let Some(outgoing) = outgoing
                && let Poll::Ready(Err(error)) = outgoing.poll_send(cx)
            {
                tracing::debug!(peer = %peer.address, %error, "the client is gone");
                return Poll::Ready(Some(Ok(())));
            }
            if streams.has_new() || (closing.is_none() && peer.close.is_requested()) {
                continue;
            }
            if tick.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            // No deadline that starts to run meanwhile can be over before this.
            let next =
                now + if closing.is_some() { limits.linger_timeout } else { limits.shortest() };
            match activity.deadline(closing, limits) {
                Deadline::Close(at) if at <= now => peer.close(),
                Deadline::Drop(at) if at <= now => return Poll::Ready(None),
                Deadline::Close(at) | Deadline::Drop(at) => {
                    tick.as_mut().reset(at.min(next).into());
                }
                Deadline::None => tick.as_mut().reset(next.into()),
            }
        }
    });
    let ended = ended.await;
    activity.turn().end();
    match ended {
        Some(Ok(())) => Ended::InOrder,
        Some(Err(error)) => {
            tracing::debug!(peer = %peer.address, %error, "connection ended with an error");
            // A request that cannot be parsed, or a frame that breaks HTTP/2, is such an error. The client has got
            // its answer or a GOAWAY, and may still be sending.
            activity.refuse();
            Ended::InOrder
        }
        None => {
            tracing::debug!(peer = %peer.address, "connection timed out");
            Ended::TimedOut
        }
    }
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// By the client, or after a response that says so.
    InOrder,
    /// The client was too slow.
    TimedOut,
}

impl Limits {
    fn shortest(&self) -> Duration {
        self.header_timeout.min(self.idle_timeout).min(self.stall_timeout)
    }
}
