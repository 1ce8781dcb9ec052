//! gRPC over unix sockets, as plugins of API servers speak it: the channel, and unary calls with one
//! deadline. Errors have the words of Go's library, which operators search for. [`Dialer`] is for channels
//! whose connections take a way of their own.

use std::error::Error as _;
use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::client::Grpc;
pub use tonic::transport::Channel;
use tonic::transport::{Endpoint, Error};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

/// A channel whose connection is opened by the first call, and again after it was lost.
pub fn lazy_channel(socket: Socket, connect_timeout: Duration) -> Channel {
    endpoint(connect_timeout).connect_with_connector_lazy(socket)
}

/// A channel with an open connection.
pub async fn connect(socket: Socket, connect_timeout: Duration) -> Result<Channel, Error> {
    endpoint(connect_timeout).connect_with_connector(socket).await
}

/// Compat: the authority that plugins see from kube-apiserver.
fn endpoint(connect_timeout: Duration) -> Endpoint {
    Endpoint::from_static("http://localhost").connect_timeout(connect_timeout)
}

/// One call. A plugin that cannot be reached is an error at once.
pub async fn call<Q, A>(
    channel: &Channel,
    method: &'static str,
    request: Q,
    timeout: Duration,
) -> Result<A, CallError>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let deadline = Instant::now() + timeout;
    timeout_at(deadline, attempt(channel, method, request))
        .await
        .unwrap_or_else(|_| Err(CallError::expired("context deadline exceeded")))
}

/// One call that waits for the plugin to be there, as far as its time allows.
pub async fn call_when_ready<Q, A>(
    channel: &Channel,
    method: &'static str,
    request: Q,
    timeout: Duration,
) -> Result<A, CallError>
where
    Q: Message + Clone + 'static,
    A: Message + Default + 'static,
{
    let deadline = Instant::now() + timeout;
    loop {
        let attempt = attempt(channel, method, request.clone());
        let error = match timeout_at(deadline, attempt).await {
            Err(_) => return Err(CallError::expired("context deadline exceeded")),
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => error,
        };
        let Some(cause) = &error.unreachable else { return Err(error) };
        if Instant::now() + RETRY_PAUSE >= deadline {
            let why = format!("latest balancer error: connection error: {cause}");
            return Err(CallError::expired(&why));
        }
        sleep(RETRY_PAUSE).await;
    }
}

/// Between two attempts to reach a plugin.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

async fn attempt<Q, A>(channel: &Channel, method: &'static str, request: Q) -> Result<A, CallError>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut grpc = Grpc::new(channel.clone());
    let ready = grpc.ready().await;
    ready.map_err(|error| CallError::from(&Status::from_error(error.into())))?;
    let codec = ProstCodec::<Q, A>::default();
    let path = PathAndQuery::from_static(method);
    match grpc.unary(Request::new(request), path, codec).await {
        Ok(answer) => Ok(answer.into_inner()),
        Err(status) => Err(CallError::from(&status)),
    }
}

/// Why a call failed; printed as Go prints it.
#[derive(Clone, Debug)]
pub struct CallError {
    /// Go's name of the code.
    pub code: &'static str,
    message: String,
    /// Why the plugin could not be reached. None: it has answered.
    unreachable: Option<String>,
}

impl CallError {
    fn expired(why: &str) -> Self {
        let code = code_name(Code::DeadlineExceeded);
        Self { code, message: why.to_owned(), unreachable: None }
    }
}

impl From<&Status> for CallError {
    fn from(status: &Status) -> Self {
        // What the plugin itself says has no cause on this side. The innermost one names the file or the
        // system's error.
        let mut cause = status.source();
        while let Some(inner) = cause.and_then(std::error::Error::source) {
            cause = Some(inner);
        }
        let cause = cause.filter(|_| status.code() == Code::Unavailable);
        Self {
            code: code_name(status.code()),
            message: status.message().to_owned(),
            unreachable: cause.map(ToString::to_string),
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rpc error: code = {} desc = {}", self.code, self.message)
    }
}

impl std::error::Error for CallError {}

/// Compat: Go's names of codes, which are labels of metrics.
fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

/// Connects to a unix socket, whatever the URI.
#[derive(Clone, Debug)]
pub struct Socket {
    path: PathBuf,
}

impl Socket {
    pub fn file(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// A socket that is a name of Linux and not a file.
    pub fn abstract_name(name: &str) -> Self {
        Self { path: OsString::from(format!("\0{name}")).into() }
    }
}

impl tower_service::Service<Uri> for Socket {
    type Response = TokioIo<UnixStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let path = self.path.clone();
        Box::pin(async move { UnixStream::connect(path).await.map(TokioIo::new) })
    }
}

/// A byte stream that gRPC is spoken over.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub type DialFuture = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// Connects to the host and port of a URI in a way of its own, such as through a proxy.
#[derive(Clone)]
pub struct Dialer(Arc<dyn Fn(String, u16) -> DialFuture + Send + Sync>);

impl Dialer {
    pub fn new(dial: impl Fn(String, u16) -> DialFuture + Send + Sync + 'static) -> Self {
        Self(Arc::new(dial))
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialer")
    }
}

impl tower_service::Service<Uri> for Dialer {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let dialed = (self.0)(host.to_owned(), uri.port_u16().unwrap_or(default));
        Box::pin(async move { dialed.await.map(TokioIo::new) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct Empty {}

    #[tokio::test]
    async fn a_plugin_that_is_away_is_an_error_in_the_words_of_go() {
        let nowhere = Socket::file(Path::new("/nonexistent/plugin.sock"));
        let channel = lazy_channel(nowhere, Duration::from_secs(1));
        let short = Duration::from_millis(300);
        let at_once: Result<Empty, _> = call(&channel, "/v1.Test/Test", Empty {}, short).await;
        assert_eq!(at_once.expect_err("nothing listens").code, "Unavailable");
        let waited: Result<Empty, _> =
            call_when_ready(&channel, "/v1.Test/Test", Empty {}, short).await;
        let error = waited.expect_err("nothing listens").to_string();
        let expected = "rpc error: code = DeadlineExceeded desc = latest balancer error: \
                        connection error: ";
        assert!(error.starts_with(expected) && error.contains("No such file"), "{error}");
    }
}
