//! exec and attach for clients that speak `v5.channel.k8s.io` over a WebSocket, where the kubelet speaks
//! SPDY: each channel becomes a stream. kube-apiserver's `StreamTranslatorHandler`.

use std::{num::NonZeroU64, pin::pin, time::Duration};

use bytes::Bytes;
use client::{Client, SendOptions, empty_body, go_text};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::BodyExt as _;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use meta::{Value, field::quote, value};
use proxy::RateLimit;
use spdy::{Frame, Session, SessionError, SessionReader, SessionWriter, StreamId};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Mutex, mpsc},
    time::{interval, timeout},
};

use crate::message_stream::{self, ClientReader, ClientWriter, Piece};

/// The subprotocol that is translated.
pub(crate) const PROTOCOL: &str = "v5.channel.k8s.io";

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// Followed by the channel that the client will not write to any more.
const CLOSE_SIGNAL: u8 = 255;

/// What the other side may say about the end of a command; more is cut.
const STATUS_BYTES_MAX: usize = 64 * 1024;
/// Of a kubelet's refusal. Compat: what is read of such a body is passed on.
const REFUSAL_BYTES_MAX: usize = 50_000;
/// Of one terminal size. `{"Width":65535,"Height":65535}` has 31 bytes.
const RESIZE_BYTES_MAX: usize = 1024;
/// For the last words to a client.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// Which streams a command has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Streams {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
    pub(crate) tty: bool,
}

/// The kubelet's side.
pub(crate) struct Backend {
    pub(crate) client: Client,
    pub(crate) url: Uri,
    pub(crate) streams: Streams,
    pub(crate) bytes_per_second_max: Option<NonZeroU64>,
}

/// How a session ended.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Success,
    ExitCode(u8),
    /// In words, for a 500.
    Failed(String),
    /// The client is gone: there is no one to answer.
    ClientGone,
}

/// Serves a client that has been upgraded until the command ends; the code for the metric.
pub(crate) async fn translate(connection: Upgraded, backend: Backend) -> u16 {
    let (reader, writer) = message_stream::split(TokioIo::new(connection));
    // Tells the client that the connection is established, on the first channel that it reads from.
    let first = match backend.streams {
        Streams { stdout: true, .. } => STDOUT,
        Streams { stderr: true, .. } => STDERR,
        _ => ERROR,
    };
    if writer.send(&[first]).await.is_err() {
        return StatusCode::BAD_REQUEST.as_u16();
    }
    let outcome = serve(reader, &writer, &backend).await;
    let code = match &outcome {
        Outcome::Success | Outcome::ExitCode(_) | Outcome::ClientGone => StatusCode::OK,
        Outcome::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    if let Some(status) = status(&outcome) {
        let mut message = vec![ERROR];
        codec::json::encode_any(&status, &mut message);
        let last_words = async {
            writer.send(&message).await?;
            writer.close_normally().await
        };
        if let Err(error) = timeout(STATUS_TIMEOUT, last_words).await {
            tracing::debug!(%error, "a client did not take its status");
        }
    }
    code.as_u16()
}

/// Reads from the client all the time, so that its leaving is noticed even while the kubelet stalls.
async fn serve(mut reader: ClientReader, writer: &ClientWriter, backend: &Backend) -> Outcome {
    let (pieces, mut input) = mpsc::channel(PIECES_MAX);
    let mut reading = pin!(async move {
        loop {
            match reader.next(writer).await {
                Ok(Some(piece)) => drop(pieces.send(piece).await),
                Ok(None) => return,
                Err(error) => return tracing::debug!(%error, "a client's WebSocket ended"),
            }
        }
    });
    let session = async {
        let mut session = connect(backend).await?;
        let opened = open(&mut session, backend.streams).await;
        Ok::<_, String>((session, opened.map_err(|error| error.to_string())?))
    };
    let connected = tokio::select! {
        connected = writer.while_there(session) => connected,
        () = &mut reading => None,
    };
    let (session, opened) = match connected {
        Some(Ok(connected)) => connected,
        Some(Err(why)) => return Outcome::Failed(why),
        None => return Outcome::ClientGone,
    };
    let gone = async {
        reading.await;
        // What it sent last is still passed on, if the kubelet takes it.
        tokio::time::sleep(STATUS_TIMEOUT).await;
        Outcome::ClientGone
    };
    tokio::select! {
        outcome = exchange(&mut input, writer, session, &opened, backend) => outcome,
        outcome = gone => outcome,
    }
}

/// Pieces of a client's messages that wait for the kubelet. Each is at most as long as one read.
const PIECES_MAX: usize = 4;

/// Compat: the fields that Go's Status has, without kind and version.
fn status(outcome: &Outcome) -> Option<Value> {
    Some(match outcome {
        Outcome::ClientGone => return None,
        Outcome::Success => value!({"metadata": {}, "status": "Success"}),
        Outcome::ExitCode(code) => {
            let message = format!(
                "command terminated with non-zero exit code: command terminated with exit code {code}"
            );
            let code = code.to_string();
            value!({
                "metadata": {},
                "status": "Failure",
                "message": (message.as_str()),
                "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": (code.as_str())}]}
            })
        }
        Outcome::Failed(why) => {
            let message = format!("Internal error occurred: {why}");
            value!({
                "metadata": {},
                "status": "Failure",
                "message": (message.as_str()),
                "reason": "InternalError",
                "details": {"causes": [{"message": (why.as_str())}]},
                "code": 500
            })
        }
    })
}

/// A SPDY session with the kubelet. Err is for the client, in the words of client-go.
async fn connect(backend: &Backend) -> Result<Session<TokioIo<Upgraded>>, String> {
    let mut request = Request::new(empty_body());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = backend.url.clone();
    let headers = request.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(spdy::UPGRADE));
    // The versions differ in what a WebSocket carries; over SPDY the last two are the same.
    for version in [PROTOCOL, "v4.channel.k8s.io"] {
        headers.append("x-stream-protocol-version", HeaderValue::from_static(version));
    }
    let options = SendOptions { dedicated: true, ..SendOptions::default() };
    let url = backend.url.to_string();
    let failed = |why: &str| {
        let why = client::url_error(&Method::POST, &url, why);
        format!("error sending request: {why}")
    };
    let sent = backend.client.send(request, options).await;
    let mut response = sent.map_err(|error| failed(&go_text(&error)))?;
    if response.status().is_redirection() && response.headers().contains_key(header::LOCATION) {
        return Err(failed("redirect not allowed"));
    }
    let names = |name, value: &str| {
        let header = response.headers().get(name).and_then(|value| value.to_str().ok());
        header.unwrap_or_default().to_ascii_lowercase().contains(value)
    };
    let upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS
        && names(header::CONNECTION, "upgrade")
        && names(header::UPGRADE, "spdy/3.1");
    if !upgraded {
        let said = refusal(response).await;
        return Err(format!("unable to upgrade connection: {said}"));
    }
    let version = response.headers().get("x-stream-protocol-version").cloned();
    let version = version.as_ref().and_then(|version| version.to_str().ok()).unwrap_or_default();
    if !matches!(version, PROTOCOL | "v4.channel.k8s.io") {
        return Err(format!("the kubelet chose the unsupported protocol {}", quote(version)));
    }
    let connection = hyper::upgrade::on(&mut response).await.map_err(|error| error.to_string())?;
    Ok(Session::new(TokioIo::new(connection)))
}

/// What a kubelet says instead of upgrading.
async fn refusal(response: Response<client::ResponseBody>) -> String {
    let body = read_at_most(response.into_body(), REFUSAL_BYTES_MAX).await;
    let options = codec::json::DecodeOptions { strict: false };
    if let Ok(decoded) = codec::json::decode_any(&body, options) {
        for field in ["message", "error"] {
            let text = decoded.value.str_at(&[field]).trim();
            if !text.is_empty() {
                return text.to_owned();
            }
        }
    }
    match String::from_utf8_lossy(&body).trim() {
        "" => "empty server response".to_owned(),
        text => text.to_owned(),
    }
}

/// A body, as far as it is needed.
pub(crate) async fn read_at_most(mut body: client::ResponseBody, bytes_max: usize) -> Bytes {
    let mut read = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(data) = frame.into_data() {
            read.extend_from_slice(&data[..data.len().min(bytes_max - read.len())]);
        }
        if read.len() == bytes_max {
            break;
        }
    }
    read.into()
}

/// The ids of a session's streams.
struct Opened {
    error: StreamId,
    stdin: Option<StreamId>,
    stdout: Option<StreamId>,
    stderr: Option<StreamId>,
    resize: Option<StreamId>,
}

/// Compat: in client-go's order; with a terminal there is no stderr.
async fn open<S: AsyncRead + AsyncWrite>(
    session: &mut Session<S>,
    streams: Streams,
) -> Result<Opened, SessionError> {
    let mut stream = async |wanted: bool, name: &str| {
        if wanted { session.open(&[("streamtype", name)]).await.map(Some) } else { Ok(None) }
    };
    let error = stream(true, "error").await?.expect("it was wanted");
    Ok(Opened {
        error,
        stdin: stream(streams.stdin, "stdin").await?,
        stdout: stream(streams.stdout, "stdout").await?,
        stderr: stream(streams.stderr && !streams.tty, "stderr").await?,
        resize: stream(streams.tty, "resize").await?,
    })
}

/// Moves bytes until the command ends or one side is gone.
async fn exchange<S: AsyncRead + AsyncWrite + Send + 'static>(
    from_client: &mut mpsc::Receiver<Piece>,
    to_client: &ClientWriter,
    session: Session<S>,
    opened: &Opened,
    backend: &Backend,
) -> Outcome {
    let Session { mut reader, writer } = session;
    let to_kubelet = Mutex::new(writer);
    let rate = backend.bytes_per_second_max;
    let outcome = tokio::select! {
        outcome = outputs(&mut reader, to_client, opened, rate) => outcome,
        outcome = inputs(from_client, to_client, opened, &to_kubelet, rate) => outcome,
        outcome = pings(&to_kubelet) => outcome,
    };
    let closing = async { to_kubelet.lock().await.close().await };
    // Whatever the kubelet makes of it, its connection ends.
    let _ = timeout(STATUS_TIMEOUT, closing).await;
    outcome
}

/// Compat: client-go pings the kubelet, so that load balancers keep the connection.
async fn pings<W: AsyncWrite + Unpin>(to_kubelet: &Mutex<SessionWriter<W>>) -> Outcome {
    let mut ticks = interval(spdy::PING_PERIOD);
    loop {
        ticks.tick().await;
        // While data is being written the connection is anything but idle.
        if let Ok(mut writer) = to_kubelet.try_lock()
            && writer.ping().await.is_err()
        {
            // The reader has learned more about why.
            std::future::pending::<()>().await;
        }
    }
}

/// From the client: input, terminal sizes, and that there is no more of them.
async fn inputs<W: AsyncWrite + Unpin>(
    from_client: &mut mpsc::Receiver<Piece>,
    to_client: &ClientWriter,
    opened: &Opened,
    to_kubelet: &Mutex<SessionWriter<W>>,
    rate: Option<NonZeroU64>,
) -> Outcome {
    let (mut stdin, mut resize) = (opened.stdin, opened.resize);
    let mut pace = rate.map(RateLimit::new);
    let mut sizes = Vec::new();
    // The channel of the message that is being read; None before its first byte.
    let mut channel = None;
    loop {
        let Some(piece) = from_client.recv().await else { return Outcome::ClientGone };
        if piece.begins {
            channel = None;
        }
        let mut bytes = &piece.bytes[..];
        if channel.is_none() {
            let Some((first, rest)) = bytes.split_first() else { continue };
            channel = Some(*first);
            bytes = rest;
        }
        if channel == Some(CLOSE_SIGNAL) && bytes.first().is_some_and(|target| *target > RESIZE) {
            return Outcome::ClientGone;
        }
        let write = async {
            match channel {
                Some(CLOSE_SIGNAL) => {
                    let stream = match bytes.first() {
                        Some(&STDIN) => stdin.take(),
                        Some(&RESIZE) => resize.take(),
                        _ => None,
                    };
                    match stream {
                        Some(stream) => to_kubelet.lock().await.finish(stream).await,
                        None => Ok(()),
                    }
                }
                Some(STDIN) => match stdin {
                    Some(stream) => paced(to_kubelet, stream, bytes, pace.as_mut()).await,
                    None => Ok(()),
                },
                Some(RESIZE) => match resize {
                    Some(stream) => send_sizes(&mut sizes, bytes, to_kubelet, stream).await,
                    None => Ok(()),
                },
                _ => Ok(()),
            }
        };
        match to_client.while_there(write).await {
            Some(Ok(())) => {}
            // The kubelet's side has ended; the other half knows how.
            Some(Err(_)) => (stdin, resize) = (None, None),
            None => return Outcome::ClientGone,
        }
    }
}

async fn paced<W: AsyncWrite + Unpin>(
    to_kubelet: &Mutex<SessionWriter<W>>,
    stream: StreamId,
    bytes: &[u8],
    pace: Option<&mut RateLimit>,
) -> Result<(), SessionError> {
    let Some(pace) = pace else { return to_kubelet.lock().await.data(stream, bytes).await };
    for chunk in bytes.chunks(pace.chunk_bytes) {
        to_kubelet.lock().await.data(stream, chunk).await?;
        pace.wait(chunk.len()).await;
    }
    Ok(())
}

/// Terminal sizes are JSON objects one behind the other; each is read, so that nothing else reaches the
/// kubelet in this stream.
async fn send_sizes<W: AsyncWrite + Unpin>(
    pending: &mut Vec<u8>,
    bytes: &[u8],
    to_kubelet: &Mutex<SessionWriter<W>>,
    stream: StreamId,
) -> Result<(), SessionError> {
    pending.extend_from_slice(&bytes[..bytes.len().min(RESIZE_BYTES_MAX - pending.len())]);
    while let Some(end) = pending.iter().position(|byte| *byte == b'}') {
        let size: Vec<u8> = pending.drain(..=end).collect();
        let options = codec::json::DecodeOptions { strict: false };
        let Ok(size) = codec::json::decode_any(&size, options) else { continue };
        let side = |name| size.value.i64_at(&[name]).unwrap_or_default();
        let (width, height) = (side("Width"), side("Height"));
        let line = format!("{{\"Width\":{width},\"Height\":{height}}}\n");
        to_kubelet.lock().await.data(stream, line.as_bytes()).await?;
    }
    if pending.len() == RESIZE_BYTES_MAX {
        pending.clear();
    }
    Ok(())
}

/// From the kubelet: output until it ends, and then what became of the command.
async fn outputs<R: AsyncRead + Unpin>(
    reader: &mut SessionReader<R>,
    to_client: &ClientWriter,
    opened: &Opened,
    rate: Option<NonZeroU64>,
) -> Outcome {
    let mut pace = rate.map(RateLimit::new);
    let mut open = vec![Some(opened.error), opened.stdout, opened.stderr];
    let mut said = Vec::new();
    while open.iter().any(Option::is_some) {
        let (stream, bytes, fin) = match reader.next().await {
            Ok(Frame::Data { stream, bytes, fin }) => (stream, bytes, fin),
            Ok(Frame::SynReply { stream, fin, .. } | Frame::Headers { stream, fin, .. }) => {
                (stream, Bytes::new(), fin)
            }
            Ok(Frame::RstStream { stream, .. }) => (stream, Bytes::new(), true),
            // Kubelets open no streams, and pings are answered with the next write.
            Ok(Frame::SynStream { .. } | Frame::Ping { .. }) => continue,
            // The end of all streams. Kubelets close without ado once they have said how it ended.
            Ok(Frame::GoAway) | Err(SessionError::Closed | SessionError::Io(_))
                if !said.is_empty() =>
            {
                break;
            }
            Ok(Frame::GoAway) => return Outcome::Failed(SessionError::Closed.to_string()),
            Err(error) => return Outcome::Failed(error.to_string()),
        };
        if stream == opened.error {
            let left = STATUS_BYTES_MAX - said.len();
            said.extend_from_slice(&bytes[..bytes.len().min(left)]);
        }
        let channel = match Some(stream) {
            stdout if stdout == opened.stdout => Some(STDOUT),
            stderr if stderr == opened.stderr => Some(STDERR),
            _ => None,
        };
        if let Some(channel) = channel
            && !bytes.is_empty()
        {
            let message = [&[channel], &bytes[..]].concat();
            if to_client.send(&message).await.is_err() {
                return Outcome::ClientGone;
            }
            if let Some(pace) = &mut pace {
                pace.wait(bytes.len()).await;
            }
        }
        if fin {
            open.retain(|one| *one != Some(stream));
            open.push(None);
        }
    }
    verdict(&said)
}

/// What the kubelet said about the end, in the words of client-go where it makes no sense.
fn verdict(said: &[u8]) -> Outcome {
    if said.is_empty() {
        return Outcome::Success;
    }
    let failed = |why: &str| Outcome::Failed(format!("error stream protocol error: {why}"));
    let options = codec::json::DecodeOptions { strict: false };
    let status = match codec::json::decode_any(said, options) {
        Ok(decoded) => decoded.value,
        Err(error) => {
            let said = String::from_utf8_lossy(said);
            return failed(&format!("{error} in {}", quote(&said)));
        }
    };
    match status.str_at(&["status"]) {
        "Success" => return Outcome::Success,
        "Failure" => {}
        _ => return failed("unknown error"),
    }
    if status.str_at(&["reason"]) != "NonZeroExitCode" {
        return Outcome::Failed(status.str_at(&["message"]).to_owned());
    }
    if status.at(&["details"]).is_none() {
        return failed("details must be set");
    }
    let mut causes = status.items_at(&["details", "causes"]).iter();
    let Some(cause) = causes.find(|cause| cause.str_at(&["reason"]) == "ExitCode") else {
        return failed("no ExitCode cause given");
    };
    let code = cause.str_at(&["message"]);
    match code.parse() {
        Ok(code) => Outcome::ExitCode(code),
        Err(_) => failed(&format!("invalid exit code value {}", quote(code))),
    }
}

#[cfg(test)]
mod tests;
