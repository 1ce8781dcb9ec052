//! A raw HTTPS client for exact bytes, headers and malformed requests.
//!
//! Calls block. The connection behind them runs on a runtime of the harness, so they may be made from
//! plain tests and from async ones. Every request has a connection of its own.

use std::future::Future;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::uri::Authority;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::certificates::Pair;
use crate::credentials::Credentials;
use crate::eventually::PATIENCE;

/// Which protocol ALPN asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

/// A way to reach one server as one user.
#[derive(Clone)]
pub struct Http {
    credentials: Arc<Credentials>,
    tls: Arc<ClientConfig>,
    protocol: Protocol,
    token: Option<String>,
}

impl Http {
    /// The administrator of a kubeconfig, over HTTP/1.1.
    pub fn new(kubeconfig: &Path) -> Self {
        let credentials = Arc::new(Credentials::read(kubeconfig));
        let token = credentials.token.clone();
        Self::build(credentials, Protocol::Http1, true, token)
    }

    /// The same user over another protocol.
    #[must_use]
    pub fn over(self, protocol: Protocol) -> Self {
        let identified = self.tls.client_auth_cert_resolver.has_certs();
        Self::build(self.credentials, protocol, identified, self.token)
    }

    /// Without credentials: neither a certificate nor a token.
    #[must_use]
    pub fn anonymous(self) -> Self {
        Self::build(self.credentials, self.protocol, false, None)
    }

    /// With this bearer token instead of a certificate.
    #[must_use]
    pub fn with_token(self, token: &str) -> Self {
        Self::build(self.credentials, self.protocol, false, Some(token.to_owned()))
    }

    /// With this client certificate instead of the administrator's.
    #[must_use]
    pub fn with_certificate(self, pair: &Pair) -> Self {
        let credentials = Arc::new(self.credentials.with_identity(pair));
        Self::build(credentials, self.protocol, true, None)
    }

    /// Shows these bytes as its client certificate, which need not be one.
    #[must_use]
    pub fn with_certificate_bytes(mut self, chain: Vec<Vec<u8>>) -> Self {
        self.token = None;
        let name: &[u8] = if self.protocol == Protocol::Http1 { b"http/1.1" } else { b"h2" };
        self.tls = Arc::new(self.credentials.tls_with_bytes(chain, name));
        self
    }

    fn build(
        credentials: Arc<Credentials>,
        protocol: Protocol,
        identified: bool,
        token: Option<String>,
    ) -> Self {
        let name: &[u8] = if protocol == Protocol::Http1 { b"http/1.1" } else { b"h2" };
        let tls = Arc::new(credentials.tls(identified, name));
        Self { credentials, tls, protocol, token }
    }

    pub(crate) fn url(&self) -> &str {
        &self.credentials.url
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, None, Vec::new())
    }

    pub fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, None, Vec::new())
    }

    pub fn post(&self, path: &str, object: &Value) -> Answer {
        self.send(Method::POST, path, Some("application/json"), object.to_string())
    }

    pub fn put(&self, path: &str, object: &Value) -> Answer {
        self.send(Method::PUT, path, Some("application/json"), object.to_string())
    }

    /// A patch of the type that the content type names, such as `application/merge-patch+json`.
    pub fn patch(&self, path: &str, content_type: &str, patch: &Value) -> Answer {
        self.send(Method::PATCH, path, Some(content_type), patch.to_string())
    }

    /// Any method, any content type, any bytes.
    pub fn send(
        &self,
        method: Method,
        path: &str,
        content_type: Option<&str>,
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(content_type) = content_type {
            request = request.header(CONTENT_TYPE, content_type);
        }
        self.request(request.body(body.into()).expect("tests write valid requests"))
    }

    /// A request made elsewhere; its URI is a path. Panics when no answer comes at all.
    #[track_caller]
    pub fn request(&self, request: Request<Bytes>) -> Answer {
        self.try_request(request).expect("the server answers")
    }

    /// As [`Self::request`], for tests in which the server may not be there.
    pub fn try_request(&self, request: Request<Bytes>) -> anyhow::Result<Answer> {
        let this = self.clone();
        block_on(async move {
            let response = this.exchange(request).await?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await.context("the body breaks off")?.to_bytes();
            Ok(Answer { code: parts.status.as_u16(), headers: parts.headers, body })
        })
    }

    /// Starts a GET whose response is read line by line: a watch.
    #[track_caller]
    pub fn stream(&self, path: &str) -> Stream {
        self.try_stream(path).expect("the server answers")
    }

    /// As [`Self::stream`], for tests in which the server may not be there.
    pub fn try_stream(&self, path: &str) -> anyhow::Result<Stream> {
        let request = Request::get(path).body(Bytes::new())?;
        let this = self.clone();
        let (parts, body) = block_on(async move { this.exchange(request).await })?.into_parts();
        let (sender, lines) = channel();
        let reader = runtime().spawn(async move {
            let (mut body, mut rest) = (body, Vec::new());
            while let Some(Ok(frame)) = body.frame().await {
                rest.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = rest.drain(..=end).collect();
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            }
        });
        let reader = reader.abort_handle();
        Ok(Stream { code: parts.status.as_u16(), headers: parts.headers, lines, reader })
    }

    /// Opens a connection for bytes that no client sends.
    pub fn raw(&self) -> anyhow::Result<RawConnection> {
        let this = self.clone();
        let stream = block_on(async move { Ok(this.transport().await?.into_inner()) })?;
        Ok(RawConnection { stream: Some(stream) })
    }

    /// Opens a connection for many requests, as clients under load have one.
    pub fn connect(&self) -> anyhow::Result<Connection> {
        let this = self.clone();
        let sender = block_on(async move {
            let (sender, connection) = http1::handshake(this.transport().await?).await?;
            tokio::spawn(connection);
            Ok(sender)
        })?;
        Ok(Connection { http: self.clone(), sender: Some(sender) })
    }

    /// A TLS connection for bytes that no HTTP client would send. A read gives up after `patience`.
    pub fn raw_blocking(
        &self,
        patience: Duration,
    ) -> anyhow::Result<StreamOwned<ClientConnection, std::net::TcpStream>> {
        let authority = self.authority()?;
        let port = authority.port_u16().unwrap_or(443);
        let tcp = std::net::TcpStream::connect((authority.host(), port))?;
        tcp.set_read_timeout(Some(patience))?;
        tcp.set_write_timeout(Some(patience))?;
        let name = ServerName::try_from(authority.host().to_owned())?;
        let tls = ClientConnection::new(Arc::clone(&self.tls), name)?;
        Ok(StreamOwned::new(tls, tcp))
    }

    /// `host:port` of the server.
    pub fn host(&self) -> String {
        self.authority().map(|authority| authority.to_string()).unwrap_or_default()
    }

    /// The header line that authenticates this user in a raw request.
    pub fn authorization(&self) -> String {
        self.token
            .as_ref()
            .map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"))
    }

    pub(crate) async fn exchange(
        &self,
        mut request: Request<Bytes>,
    ) -> anyhow::Result<Response<Incoming>> {
        self.authorize(&mut request)?;
        let io = self.transport().await?;
        // The connection ends when sender and body are gone; its errors show up there.
        Ok(match self.protocol {
            Protocol::Http1 => {
                request.headers_mut().insert(HOST, self.authority()?.as_str().parse()?);
                let (mut sender, connection) = http1::handshake(io).await?;
                tokio::spawn(connection.with_upgrades());
                sender.send_request(request.map(Full::new)).await?
            }
            Protocol::Http2 => {
                let path = request.uri().path_and_query().context("the URI is a path")?.clone();
                *request.uri_mut() = Uri::builder()
                    .scheme("https")
                    .authority(self.authority()?)
                    .path_and_query(path)
                    .build()?;
                let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
                tokio::spawn(connection);
                sender.send_request(request.map(Full::new)).await?
            }
        })
    }

    /// Adds the bearer token, unless the test has set another.
    fn authorize(&self, request: &mut Request<Bytes>) -> anyhow::Result<()> {
        if let Some(token) = &self.token
            && !request.headers().contains_key(AUTHORIZATION)
        {
            request.headers_mut().insert(AUTHORIZATION, format!("Bearer {token}").parse()?);
        }
        Ok(())
    }

    fn authority(&self) -> anyhow::Result<Authority> {
        let server: Uri = self.credentials.url.parse().context("the server's address")?;
        Ok(server.authority().context("the server's address has a host")?.clone())
    }

    async fn transport(&self) -> anyhow::Result<TokioIo<TlsStream<TcpStream>>> {
        let authority = self.authority()?;
        let port = authority.port_u16().unwrap_or(443);
        let tcp = TcpStream::connect((authority.host(), port)).await.context("no connection")?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from(authority.host().to_owned())?;
        let tls = TlsConnector::from(Arc::clone(&self.tls)).connect(name, tcp).await?;
        Ok(TokioIo::new(tls))
    }
}

/// A TLS connection, byte by byte.
pub struct RawConnection {
    stream: Option<TlsStream<TcpStream>>,
}

impl RawConnection {
    pub fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let (mut stream, bytes) = (self.stream.take().context("broken before")?, bytes.to_vec());
        let stream = block_on(async move {
            stream.write_all(&bytes).await?;
            stream.flush().await?;
            Ok(stream)
        })?;
        self.stream = Some(stream);
        Ok(())
    }

    /// What the server sends until `enough` says so or it closes the connection.
    pub fn read_until(&mut self, enough: fn(&[u8]) -> bool) -> anyhow::Result<Vec<u8>> {
        let mut stream = self.stream.take().context("broken before")?;
        let (stream, read) = block_on(async move {
            let mut read = Vec::new();
            // A connection that ends without close_notify has ended too.
            while !enough(&read) && matches!(stream.read_buf(&mut read).await, Ok(1..)) {}
            Ok((stream, read))
        })?;
        self.stream = Some(stream);
        Ok(read)
    }
}

/// A connection over HTTP/1.1 that takes one request after the other.
pub struct Connection {
    http: Http,
    sender: Option<http1::SendRequest<Full<Bytes>>>,
}

impl Connection {
    /// Sends a request whose URI is a path. After an error it is unknown whether the server has processed
    /// it, and the connection is closed.
    pub fn request(&mut self, mut request: Request<Bytes>) -> anyhow::Result<Answer> {
        let mut sender = self.sender.take().context("the connection is over")?;
        self.http.authorize(&mut request)?;
        request.headers_mut().insert(HOST, self.http.authority()?.as_str().parse()?);
        let (answer, sender) = block_on(async move {
            sender.ready().await?;
            let (parts, body) = sender.send_request(request.map(Full::new)).await?.into_parts();
            let body = body.collect().await.context("the body breaks off")?.to_bytes();
            Ok((Answer { code: parts.status.as_u16(), headers: parts.headers, body }, sender))
        })?;
        self.sender = Some(sender);
        Ok(answer)
    }
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in the body of {}: {}", self.code, self.text()))
    }

    /// The body of an answer that must have this code.
    #[track_caller]
    pub fn expect(&self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", self.text());
        self.json()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// A streamed response. Dropping it closes the connection.
#[derive(Debug)]
pub struct Stream {
    pub code: u16,
    pub headers: HeaderMap,
    lines: Receiver<Vec<u8>>,
    reader: AbortHandle,
}

impl Stream {
    /// The next line as JSON, which for a watch is the next event; nothing once the stream ended.
    #[track_caller]
    pub fn next_event(&mut self) -> Option<Value> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(serde_json::from_slice(&line).expect("each line is a JSON document")),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no event came within {PATIENCE:?}"),
        }
    }

    /// The next event, which must come, and must be of this type.
    #[track_caller]
    pub fn expect(&mut self, kind: &str) -> Value {
        let event = self.next_event().unwrap_or_else(|| panic!("the stream ended before {kind}"));
        assert_eq!(event["type"], kind, "{event}");
        event["object"].clone()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Runs a future to its end on the harness's runtime, with a deadline.
pub(crate) fn block_on<T: Send + 'static>(
    future: impl Future<Output = anyhow::Result<T>> + Send + 'static,
) -> anyhow::Result<T> {
    let (sender, answer): (SyncSender<anyhow::Result<T>>, _) = sync_channel(1);
    runtime().spawn(async move {
        let result = match tokio::time::timeout(PATIENCE, future).await {
            Ok(result) => result,
            Err(_) => Err(anyhow::anyhow!("no answer within {PATIENCE:?}")),
        };
        // The receiver waits below.
        let _ = sender.send(result);
    });
    answer.recv().context("the client panicked")?
}

pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().expect("a runtime can be started"))
}
