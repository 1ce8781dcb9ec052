//! WebSockets: a connection on HTTP/1.1 that a client asks to change over carries the events of a watch as messages.
//!
//! A handler answers as always, with a body of events, and adds an [`Upgrade`]. What happens to the answer on its way out
//! (guards, the end at shutdown, the count of bytes) happens to the body; at the very end the connection changes over and
//! a task of its own sends the body's chunks, each as one message.

mod frame;
mod message;
mod token;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{
    CONNECTION, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use self::frame::{Decoder, Received};
use crate::Body;

pub use self::frame::{NORMAL_CLOSE, Opcode, PROTOCOL_ERROR, encode as encode_frame};
pub use self::message::{Event, MessageDecoder, Violation, decode_messages};
pub(crate) use self::token::{ProtocolToken, TokenError};

/// Entry point for the fuzz target: what is received in these pieces, as text.
#[doc(hidden)]
pub fn decode_frames<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    let mut decoder = frame::Decoder::default();
    let received = pieces.into_iter().flat_map(|piece| decoder.read(piece));
    received.map(|received| format!("{received:?}")).collect()
}

/// Whether the client wants the connection to become a WebSocket. HTTP/2 has no such thing.
pub fn is_requested<B>(request: &Request<B>) -> bool {
    request.version() == Version::HTTP_11 && asks_for_websocket(request.headers())
}

pub(crate) fn asks_for_websocket(headers: &HeaderMap) -> bool {
    let connection = headers.get_all(CONNECTION).iter();
    text(headers.get(UPGRADE)).eq_ignore_ascii_case("websocket")
        && connection.map(|value| text(Some(value))).any(contains_upgrade)
}

fn contains_upgrade(connection: &str) -> bool {
    connection.to_ascii_lowercase().contains("upgrade")
}

fn text(value: Option<&HeaderValue>) -> &str {
    value.and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// A connection that will change over.
#[derive(Clone)]
pub struct Upgrade {
    connection: OnUpgrade,
    accept: HeaderValue,
    protocol: Option<HeaderValue>,
}

/// How a message is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    Text,
    Binary,
}

/// Why a connection cannot change over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    code: StatusCode,
    message: &'static str,
}

impl Upgrade {
    /// Reads the client's half of the handshake.
    pub fn read(request: &mut Request<Incoming>) -> Result<Self, Refusal> {
        let (accept, protocol) = shake_hands(request.headers())?;
        Ok(Self { connection: hyper::upgrade::on(request), accept, protocol })
    }

    /// Lets the events of an answer go out as messages.
    #[must_use]
    pub fn carry(self, mut response: Response<Body>, message: Message) -> Response<Body> {
        response.extensions_mut().insert((self, message));
        response
    }
}

/// Agrees to a WebSocket whose messages the caller reads and writes: the connection, and the response
/// that changes it over, without a body. For programs, which have no origin.
pub fn accept_messages(
    request: &mut Request<Incoming>,
    protocol: Option<&str>,
) -> Result<(OnUpgrade, Response<()>), Refusal> {
    if request.method() != Method::GET {
        return Err(Refusal { code: StatusCode::METHOD_NOT_ALLOWED, message: "bad method" });
    }
    let accept = prove(request.headers())?;
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let protocol = protocol.and_then(|protocol| HeaderValue::from_str(protocol).ok());
    add_switching_headers(response.headers_mut(), accept, protocol);
    Ok((hyper::upgrade::on(request), response))
}

/// The subprotocols that a client offers, in its order.
pub fn offered_protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    values.flat_map(|value| text(Some(value)).split(',')).map(str::trim)
}

/// Proof that the client's key was read.
fn prove(headers: &HeaderMap) -> Result<HeaderValue, Refusal> {
    let refuse = |message| Err(Refusal { code: StatusCode::BAD_REQUEST, message });
    let key = text(headers.get(SEC_WEBSOCKET_KEY));
    if key.is_empty() {
        return refuse("mismatch challenge/response");
    }
    if text(headers.get(SEC_WEBSOCKET_VERSION)) != VERSION {
        return refuse(BAD_VERSION);
    }
    Ok(accept(key))
}

fn add_switching_headers(
    headers: &mut HeaderMap,
    accept: HeaderValue,
    protocol: Option<HeaderValue>,
) {
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(protocol) = protocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
}

/// The server's half: proof that the key was read, and the subprotocol.
///
/// Compat: Go's library has the handshake of browsers in mind. A client that gives no origin is refused, and of several
/// subprotocols none can be chosen for a watch, because none has a meaning there; a single one is repeated, whatever it is.
fn shake_hands(headers: &HeaderMap) -> Result<(HeaderValue, Option<HeaderValue>), Refusal> {
    let refuse = |code, message| Err(Refusal { code, message });
    let proof = prove(headers)?;
    if !is_origin(text(headers.get(ORIGIN))) {
        return refuse(StatusCode::FORBIDDEN, "");
    }
    let protocol = text(headers.get(SEC_WEBSOCKET_PROTOCOL)).trim();
    if protocol.contains(',') {
        return refuse(StatusCode::BAD_REQUEST, "");
    }
    let protocol = (!protocol.is_empty()).then(|| HeaderValue::from_str(protocol).ok()).flatten();
    Ok((proof, protocol))
}

/// The only version there is.
const VERSION: &str = "13";
const BAD_VERSION: &str = "missing or bad WebSocket Version";

/// A URL with a scheme or a path: `null` of a sandboxed page is neither.
fn is_origin(origin: &str) -> bool {
    let plain = origin.bytes().all(|byte| byte.is_ascii_graphic());
    let has_scheme = origin.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    });
    plain && (origin.starts_with('/') || has_scheme)
}

fn accept(key: &str) -> HeaderValue {
    const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    // The protocol asks for SHA-1; nothing rests on its strength.
    let digest = aws_lc_rs::digest::digest(
        &aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY,
        format!("{key}{GUID}").as_bytes(),
    );
    HeaderValue::from_str(&STANDARD.encode(digest)).expect("base64 is a valid header")
}

impl Refusal {
    /// Nothing more is read from the connection: what follows could be frames.
    pub fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::full(self.message));
        *response.status_mut() = self.code;
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        if self.message == BAD_VERSION {
            let version = HeaderValue::from_static(VERSION);
            response.headers_mut().insert(SEC_WEBSOCKET_VERSION, version);
        }
        response
    }
}

/// Changes the connection over if the answer asks for it; other answers pass.
///
/// `stall` is how long a client may leave what is sent to it unread.
pub(crate) fn change_over(mut response: Response<Body>, stall: Duration) -> Response<Body> {
    let Some((upgrade, message)) = response.extensions_mut().remove::<(Upgrade, Message)>() else {
        return response;
    };
    let body = response.into_body();
    tokio::spawn(async move {
        match upgrade.connection.await {
            Ok(connection) => match pump(TokioIo::new(connection), body, message, stall).await {
                Ok(()) => {}
                Err(error) => tracing::debug!(%error, "WebSocket ended with an error"),
            },
            Err(error) => tracing::debug!(%error, "connection did not become a WebSocket"),
        }
    });
    let mut switching = Response::new(Body::empty());
    *switching.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    add_switching_headers(switching.headers_mut(), upgrade.accept, upgrade.protocol);
    switching
}

/// Sends chunks as messages until they end or the client sends a close frame, and answers its pings meanwhile.
async fn pump(
    connection: impl AsyncRead + AsyncWrite,
    mut body: Body,
    message: Message,
    stall: Duration,
) -> std::io::Result<()> {
    let (mut reader, writer) = tokio::io::split(connection);
    let mut writer = Writer { inner: writer, stall };
    let opcode = match message {
        Message::Text => Opcode::Text,
        Message::Binary => Opcode::Binary,
    };
    let mut decoder = Decoder::default();
    let mut incoming = [0; READ_BYTES];
    loop {
        tokio::select! {
            chunk = body.frame() => match chunk.map(|chunk| chunk.map(http_body::Frame::into_data)) {
                Some(Ok(Ok(chunk))) => writer.send(opcode, &chunk).await?,
                Some(Ok(Err(_trailers))) => {}
                Some(Err(_)) | None => break,
            },
            count = reader.read(&mut incoming) => match count? {
                0 => return Ok(()),
                count => match answer(&mut decoder, &incoming[..count], &mut writer).await? {
                    ClientState::Open => {}
                    ClientState::Closing => break,
                },
            },
        }
    }
    // The guards are dropped before the close frame: shutdown waits for this watch, not for its client.
    drop(body);
    writer.send(Opcode::Close, &frame::NORMAL_CLOSE).await?;
    writer.inner.shutdown().await
}

/// A client of a watch has nothing to say but pings.
const READ_BYTES: usize = 1024;

enum ClientState {
    Open,
    Closing,
}

async fn answer<W: AsyncWrite + Unpin>(
    decoder: &mut Decoder,
    bytes: &[u8],
    writer: &mut Writer<W>,
) -> std::io::Result<ClientState> {
    for received in decoder.read(bytes) {
        match received {
            Received::Ping(payload) => writer.send(Opcode::Pong, &payload).await?,
            Received::Close => return Ok(ClientState::Closing),
            Received::Violation => {
                writer.send(Opcode::Close, &frame::PROTOCOL_ERROR).await?;
                return Ok(ClientState::Closing);
            }
        }
    }
    Ok(ClientState::Open)
}

struct Writer<W> {
    inner: W,
    stall: Duration,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    async fn send(&mut self, opcode: Opcode, payload: &[u8]) -> std::io::Result<()> {
        let bytes: Bytes = frame::encode(opcode, payload).into();
        let sending = async {
            self.inner.write_all(&bytes).await?;
            self.inner.flush().await
        };
        let stalled =
            |_| Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "the client does not read"));
        tokio::time::timeout(self.stall, sending).await.unwrap_or_else(stalled)
    }
}

#[cfg(test)]
mod tests;
