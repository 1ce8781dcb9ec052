//! One connection: from a dialed stream to something that takes requests, HTTP/1.1 or HTTP/2 as
//! agreed on by ALPN.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, Request, Response, Uri, Version, header::HOST, uri::Scheme};
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use tokio_rustls::TlsConnector;

use crate::{
    Body,
    counted_stream::CountedStream,
    deadline::Deadline,
    dial::{Dial, Stream},
    error::{Error, Phase},
    frame_budget::{BudgetedStream, FrameBudget},
    limits::Limits,
    origin::Origin,
    pool::Permit,
    tls,
};

/// Takes requests for a connection. The connection itself is driven by a task, which ends when the
/// server closes it or the last sender is gone.
pub(crate) enum Sender {
    /// One request at a time.
    Http1(http1::SendRequest<Body>),
    /// Many at a time: clones share the connection.
    Http2(Http2),
}

/// An HTTP/2 connection. Each clone but the pool's is a call that uses it.
#[derive(Clone)]
pub(crate) struct Http2 {
    sender: http2::SendRequest<Body>,
    budget: FrameBudget,
    users: Arc<()>,
}

/// Held as long as a response is being received, so that the pool knows how full a connection is.
pub(crate) type StreamInUse = Arc<()>;

impl Http2 {
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Asked of the pool's own clone.
    pub(crate) fn in_use(&self) -> usize {
        Arc::strong_count(&self.users) - 1
    }

    pub(crate) fn stream(self) -> StreamInUse {
        self.users
    }
}

/// Compat: as long as client-go lets an HTTP/2 connection be silent before it sends a ping, and then
/// waits for the answer. Without them a connection to a host that is gone stays in use until the
/// kernel gives it up, some 15 minutes later.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Opens a connection: dial, TLS, HTTP. A permit is held until the connection is closed, also when it is
/// upgraded.
pub(crate) async fn open(
    dial: &dyn Dial,
    tls: &Arc<ClientConfig>,
    origin: &Origin,
    limits: &Limits,
    deadline: Deadline,
    permit: Option<Permit>,
) -> Result<Sender, Error> {
    let to = &origin.dial;
    let mut tcp = deadline.bound(Phase::Dialing, dial.dial(&to.host, to.port)).await??;
    if let Some(permit) = permit {
        tcp = Box::new(CountedStream::new(tcp, permit));
    }
    let Some(server_name) = origin.server_name.clone() else {
        return http1(tcp, limits).await;
    };
    let connector = TlsConnector::from(tls.clone());
    let handshake = connector.connect(server_name.clone(), tcp);
    let tls = deadline
        .bound(Phase::TlsHandshake, handshake)
        .await?
        .map_err(|error| tls_error(server_name.to_str().into_owned(), error))?;
    if tls.get_ref().1.alpn_protocol() == Some(tls::HTTP2) {
        http2(Box::new(tls), limits).await
    } else {
        http1(Box::new(tls), limits).await
    }
}

fn tls_error(server_name: String, error: std::io::Error) -> Error {
    match error.downcast::<rustls::Error>() {
        Ok(source) => Error::Tls { server_name, source },
        Err(source) => Error::TlsHandshake { server_name, source },
    }
}

async fn http1(stream: Box<dyn Stream>, limits: &Limits) -> Result<Sender, Error> {
    let mut builder = http1::Builder::new();
    builder.max_header_size(limits.response_header_bytes_max);
    builder.max_headers(limits.response_headers_max);
    // The head of a response must fit into the buffer that it is parsed from.
    builder.max_buf_size(limits.response_header_bytes_max.max(BUFFER_BYTES_MIN));
    let (sender, connection) =
        builder.handshake(TokioIo::new(stream)).await.map_err(Error::Http)?;
    tokio::spawn(async move {
        // Its errors are those of the call that uses it.
        let _ = connection.with_upgrades().await;
    });
    Ok(Sender::Http1(sender))
}

/// Smaller buffers are refused by hyper, with a panic.
const BUFFER_BYTES_MIN: usize = 8 * 1024;

async fn http2(stream: Box<dyn Stream>, limits: &Limits) -> Result<Sender, Error> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        // A response that the client does not read fills its stream's window and must not fill the connection's.
        .initial_connection_window_size(
            STREAM_WINDOW_BYTES.saturating_mul(limits.streams_per_connection_max as u32),
        )
        .max_send_buf_size(STREAM_WINDOW_BYTES as usize)
        .max_header_list_size(limits.response_header_bytes_max as u32);
    let budget = FrameBudget::new();
    let stream = BudgetedStream::new(stream, budget.clone());
    let (sender, connection) =
        builder.handshake(TokioIo::new(stream)).await.map_err(Error::Http)?;
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(Sender::Http2(Http2 { sender, budget, users: Arc::new(()) }))
}

/// What a server may send of one response before it is read.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;

/// Why there is no response.
pub(crate) struct Failure {
    pub(crate) error: hyper::Error,
    /// The request, where hyper knows that nothing of it was sent.
    pub(crate) unsent: Option<Request<Body>>,
    /// Not only this request failed, but the connection.
    pub(crate) connection_lost: bool,
}

impl Sender {
    /// Sends a request; Ok when the head of its response is there.
    pub(crate) async fn send(
        &mut self,
        request: Request<Body>,
        origin: &Origin,
    ) -> Result<Response<Incoming>, Failure> {
        let sent = match self {
            Self::Http1(sender) => sender.try_send_request(for_http1(request, origin)).await,
            Self::Http2(http2) => {
                http2.budget.add_request();
                http2.sender.try_send_request(for_http2(request, origin)).await
            }
        };
        sent.map_err(|error| self.failure(error))
    }

    fn failure(&self, mut error: TrySendError<Request<Body>>) -> Failure {
        let unsent = error.take_message();
        let error = error.into_error();
        let source = std::error::Error::source(&error);
        let is_io = source.is_some_and(<dyn std::error::Error>::is::<std::io::Error>);
        let connection_lost = match self {
            Self::Http1(_) => {
                error.is_incomplete_message() || error.is_closed() || error.is_canceled() || is_io
            }
            // A stream can be reset without the connection.
            Self::Http2(http2) => http2.is_closed(),
        };
        Failure { error, unsent, connection_lost }
    }
}

/// HTTP/1.1 has the path in the request line, and the authority in `Host`.
fn for_http1(mut request: Request<Body>, origin: &Origin) -> Request<Body> {
    *request.version_mut() = Version::HTTP_11;
    let path = path_and_query(request.uri());
    *request.uri_mut() = Uri::builder().path_and_query(path).build().unwrap_or_default();
    if !request.headers().contains_key(HOST) {
        let host = HeaderValue::try_from(origin.authority.as_str());
        request.headers_mut().insert(HOST, host.expect("an authority is plain text"));
    }
    request
}

/// HTTP/2 has all of it in pseudo-headers.
fn for_http2(mut request: Request<Body>, origin: &Origin) -> Request<Body> {
    *request.version_mut() = Version::HTTP_2;
    let host = request.headers_mut().remove(HOST);
    let host = host.and_then(|host| http::uri::Authority::try_from(host.as_bytes()).ok());
    let scheme = if origin.server_name.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
    let path = path_and_query(request.uri());
    *request.uri_mut() = Uri::builder()
        .scheme(scheme)
        .authority(host.unwrap_or_else(|| origin.authority.clone()))
        .path_and_query(path)
        .build()
        .expect("all three are valid parts of a URI");
    request
}

fn path_and_query(uri: &Uri) -> http::uri::PathAndQuery {
    uri.path_and_query()
        .cloned()
        .filter(|path| !path.as_str().is_empty())
        .unwrap_or_else(|| http::uri::PathAndQuery::from_static("/"))
}
