//! A Kubernetes client that does as little as possible: HTTP/2 over a few TLS 1.3 connections, with
//! windows so large that the server is never held back by flow control.

use std::cell::Cell;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue,
};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::kubeconfig::Credentials;

pub(crate) const JSON: &str = "application/json";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Connections to one server; requests take turns on them.
pub(crate) struct Client {
    target: Target,
    connections: Vec<SendRequest<Full<Bytes>>>,
    next: Cell<usize>,
}

/// The server's address and the client's credentials.
#[derive(Clone)]
pub(crate) struct Target {
    host: String,
    port: u16,
    name: ServerName<'static>,
    tls: TlsConnector,
    authorization: Option<HeaderValue>,
}

/// One request. Start from [`Call::get`] or [`Call::send`].
#[derive(Clone)]
pub(crate) struct Call {
    method: Method,
    path: String,
    accept: &'static str,
    content_type: &'static str,
    gzip: bool,
    body: Bytes,
    identity: Option<Identity>,
}

/// The user that a request impersonates.
#[derive(Clone, Copy)]
pub(crate) struct Identity {
    pub(crate) user: &'static str,
    pub(crate) group: &'static str,
}

/// A finished answer. The body is counted, and kept as far as the caller asked for.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) gzip: bool,
    pub(crate) bytes: u64,
    pub(crate) kept: Vec<u8>,
}

/// How much of a body to keep; the rest is only counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    Nothing,
    /// The first few KB: list metadata stands before the items.
    Head,
    All,
}

/// Why an operation did not succeed.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// The HTTP status, if there was an answer.
    pub(crate) code: Option<u16>,
    pub(crate) message: String,
}

impl Call {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::send(Method::GET, path, "", Bytes::new())
    }

    pub(crate) fn send(
        method: Method,
        path: impl Into<String>,
        content_type: &'static str,
        body: impl Into<Bytes>,
    ) -> Self {
        Self {
            method,
            path: path.into(),
            accept: JSON,
            content_type,
            gzip: false,
            body: body.into(),
            identity: None,
        }
    }

    pub(crate) fn accept(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }

    pub(crate) fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    pub(crate) fn gzip(mut self) -> Self {
        self.gzip = true;
        self
    }
}

impl Client {
    pub(crate) async fn connect(target: &Target, connections: usize) -> Result<Self> {
        let mut client =
            Self { target: target.clone(), connections: Vec::new(), next: Cell::new(0) };
        for _ in 0..connections {
            client.connections.push(target.open().await?);
        }
        Ok(client)
    }

    /// A client with one connection to a server that says it is ready; an error if it does not.
    pub(crate) async fn ready(target: &Target) -> Result<Self> {
        let client = Self::connect(target, 1).await?;
        client.ok(&Call::get("/readyz"), Keep::Nothing).await?;
        Ok(client)
    }

    /// Replaces connections that the server has closed, so that one scenario cannot spoil the next.
    pub(crate) async fn heal(&mut self) -> Result<()> {
        for connection in &mut self.connections {
            if connection.is_closed() {
                *connection = self.target.open().await?;
            }
        }
        Ok(())
    }

    /// Sends the request and waits for the whole answer, whatever its status.
    pub(crate) async fn answer(&self, call: &Call, keep: Keep) -> Result<Answer, Failure> {
        let response = self.open(call).await?;
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let mut answer = Answer {
            status: response.status().as_u16(),
            content_type: header(CONTENT_TYPE).unwrap_or("").to_owned(),
            gzip: header(CONTENT_ENCODING) == Some("gzip"),
            bytes: 0,
            kept: Vec::new(),
        };
        let kept_bytes_max = match keep {
            // A failure is always worth reading.
            _ if answer.status >= 300 => HEAD_BYTES,
            Keep::Nothing => 0,
            Keep::Head => HEAD_BYTES,
            Keep::All => usize::MAX,
        };
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Failure::transport(&error))?;
            let Some(data) = frame.data_ref() else { continue };
            answer.bytes += data.len() as u64;
            let room = kept_bytes_max.saturating_sub(answer.kept.len());
            answer.kept.extend_from_slice(&data[..data.len().min(room)]);
        }
        Ok(answer)
    }

    /// Like [`Client::answer`], but any status other than success is a failure.
    pub(crate) async fn ok(&self, call: &Call, keep: Keep) -> Result<Answer, Failure> {
        let answer = self.answer(call, keep).await?;
        if answer.status < 300 { Ok(answer) } else { Err(Failure::of(call, &answer)) }
    }

    /// Sends the request and returns as soon as the headers are here: for watches.
    pub(crate) async fn open(&self, call: &Call) -> Result<Response<Incoming>, Failure> {
        let turn = self.next.get();
        self.next.set(turn.wrapping_add(1));
        let mut connection = self.connections[turn % self.connections.len()].clone();
        let request = self.target.request(call).map_err(|error| Failure::local(&error))?;
        connection.ready().await.map_err(|error| Failure::transport(&error))?;
        connection.send_request(request).await.map_err(|error| Failure::transport(&error))
    }
}

impl Target {
    pub(crate) fn new(url: &str, credentials: &Credentials) -> Result<Self> {
        let address = url.strip_prefix("https://").context("the server's URL must be https://")?;
        let address = address.split('/').next().unwrap_or(address);
        let (host, port) = match address.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().with_context(|| format!("bad port in {url}"))?)
            }
            _ => (address, 443),
        };
        let host = host.trim_matches(['[', ']']).to_owned();
        let name =
            ServerName::try_from(host.clone()).with_context(|| format!("bad host {host}"))?;
        let authorization = match &credentials.token {
            Some(token) => Some(HeaderValue::try_from(format!("Bearer {token}"))?),
            None => None,
        };
        let tls = TlsConnector::from(Arc::new(tls_config(credentials)?));
        Ok(Self { host, port, name, tls, authorization })
    }

    async fn open(&self) -> Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port))
            .await
            .with_context(|| format!("connecting to {}:{}", self.host, self.port))?;
        stream.set_nodelay(true)?;
        let stream =
            self.tls.connect(self.name.clone(), stream).await.context("the TLS handshake")?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .context("the HTTP/2 handshake")?;
        // An error here shows up in the requests that were on the connection.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    /// A connection for a request that is upgraded.
    pub(crate) async fn open_http1(&self) -> Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        let mut config = rustls::ClientConfig::clone(self.tls.config());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let tls = TlsConnector::from(Arc::new(config));
        tls.connect(self.name.clone(), stream).await.context("the TLS handshake")
    }

    /// `host:port`
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.shown_host(), self.port)
    }

    /// The header, if there is one.
    pub(crate) fn authorization(&self) -> Option<&str> {
        self.authorization.as_ref()?.to_str().ok()
    }

    fn shown_host(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }

    fn request(&self, call: &Call) -> Result<Request<Full<Bytes>>> {
        let host = self.shown_host();
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(format!("https://{host}:{}{}", self.port, call.path))
            .header(ACCEPT, HeaderValue::from_static(call.accept));
        if !call.content_type.is_empty() {
            request = request.header(CONTENT_TYPE, HeaderValue::from_static(call.content_type));
        }
        if call.gzip {
            request = request.header(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        }
        if let Some(identity) = call.identity {
            request = request.header("impersonate-user", HeaderValue::from_static(identity.user));
            request = request.header("impersonate-group", HeaderValue::from_static(identity.group));
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        Ok(request.body(Full::new(call.body.clone()))?)
    }
}

fn tls_config(credentials: &Credentials) -> Result<rustls::ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?;
    let builder = match &credentials.ca_pem {
        Some(pem) => {
            let mut roots = rustls::RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(pem) {
                roots.add(certificate.context("reading the CA")?)?;
            }
            builder.with_root_certificates(roots)
        }
        None => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(unverified::AnyServer(provider))),
    };
    let mut config = match (&credentials.cert_pem, &credentials.key_pem) {
        (Some(certificate), Some(key)) => {
            let chain = CertificateDer::pem_slice_iter(certificate)
                .collect::<Result<Vec<_>, _>>()
                .context("reading the client certificate")?;
            let key = PrivateKeyDer::from_pem_slice(key).context("reading the client key")?;
            builder.with_client_auth_cert(chain, key)?
        }
        (None, None) => builder.with_no_client_auth(),
        _ => bail!("a client certificate needs its key, and a key its certificate"),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// For a server on the loopback interface with an unknown CA.
mod unverified {
    use std::sync::Arc;

    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::crypto::CryptoProvider;
    use rustls::{DigitallySignedStruct, Error, SignatureScheme};
    use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

    #[derive(Debug)]
    pub(super) struct AnyServer(pub(super) Arc<CryptoProvider>);

    impl ServerCertVerifier for AnyServer {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.0.signature_verification_algorithms.supported_schemes()
        }
    }
}

impl Failure {
    fn transport(error: &hyper::Error) -> Self {
        let mut message = error.to_string();
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            message = format!("{message}: {error}");
            cause = error.source();
        }
        Self { code: None, message }
    }

    pub(crate) fn local(error: &anyhow::Error) -> Self {
        Self { code: None, message: format!("{error:#}") }
    }

    pub(crate) fn of(call: &Call, answer: &Answer) -> Self {
        let text = String::from_utf8_lossy(&answer.kept);
        let message: String = text.chars().take(MESSAGE_CHARS_MAX).collect();
        let what = format!("{} {}: {} {message}", call.method, call.path, answer.status);
        Self { code: Some(answer.status), message: what.trim_end().to_owned() }
    }

    /// The server says that it does not do this at all.
    pub(crate) fn is_unsupported(&self) -> bool {
        matches!(self.code, Some(404 | 405 | 406 | 415 | 501))
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Large enough for eight large lists at once: the server never waits for a window update.
const STREAM_WINDOW_BYTES: u32 = 16 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;
/// Enough for the metadata of any list, and for a Status.
const HEAD_BYTES: usize = 4096;
/// How much of an error answer a report shows.
const MESSAGE_CHARS_MAX: usize = 300;
