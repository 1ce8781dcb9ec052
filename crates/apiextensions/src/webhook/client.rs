//! Calls a webhook over HTTPS.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{body::Incoming, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::trust::Trust;

/// Where a webhook is.
pub(super) struct Address {
    /// What to connect to; the name that its certificate has may be another one.
    pub(super) connect: (String, u16),
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) path: String,
}

impl Address {
    pub(super) fn of_url(url: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|error| format!("{url}: {error}"))?;
        if uri.scheme_str() != Some("https") {
            return Err(format!("{url}: the scheme must be https"));
        }
        let host = uri.host().unwrap_or_default().to_owned();
        let port = uri.port_u16().unwrap_or(443);
        let path = uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        Ok(Self { connect: (host.clone(), port), host, port, path })
    }

    fn path(&self) -> &str {
        if self.path.is_empty() { "/" } else { &self.path }
    }

    pub(super) fn shown(&self) -> String {
        format!("https://{}:{}{}?timeout=30s", self.host, self.port, self.path())
    }
}

/// Trusts what the definition says, or what the system trusts. Connections are kept for the next call.
pub(super) struct Client {
    connector: Result<TlsConnector, String>,
    idle: Mutex<Vec<Idle>>,
}

/// A connection that nobody uses at the moment.
struct Idle {
    to: (String, u16),
    since: Instant,
    sender: Sender,
}

type Sender = SendRequest<Full<Bytes>>;

/// More are closed when their call is over.
const IDLE_MAX: usize = 8;
/// As long as Go keeps them; most servers keep them longer.
const IDLE_TIME_MAX: Duration = Duration::from_secs(90);
const TIMEOUT: Duration = Duration::from_secs(30);
/// An answer that is longer is not read to its end.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Where systems keep the certificates that they trust.
const SYSTEM_ROOTS: [&str; 2] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

impl Client {
    /// `ca_bundle` is PEM in base64; empty: the system's.
    pub(super) fn new(ca_bundle: &str) -> Self {
        Self { connector: connector(ca_bundle), idle: Mutex::default() }
    }

    pub(super) async fn post(&self, address: &Address, body: Bytes) -> Result<Bytes, String> {
        match tokio::time::timeout(TIMEOUT, self.call(address, body)).await {
            Ok(answer) => answer,
            Err(_) => Err("context deadline exceeded".to_owned()),
        }
    }

    async fn call(&self, address: &Address, body: Bytes) -> Result<Bytes, String> {
        let connector = self.connector.as_ref().map_err(Clone::clone)?;
        // The webhook may close a connection in the very moment that it is used again.
        while let Some(mut sender) = self.take(address) {
            if let Ok(answer) = sender.send_request(request(address, body.clone())?).await {
                return self.finish(address, sender, answer).await;
            }
        }
        let mut sender = connect(connector, address).await?;
        let answer = sender.send_request(request(address, body)?).await;
        self.finish(address, sender, answer.map_err(|error| error.to_string())?).await
    }

    /// Reads an answer to its end; the connection is free then.
    async fn finish(
        &self,
        address: &Address,
        sender: Sender,
        answer: Response<Incoming>,
    ) -> Result<Bytes, String> {
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(Idle { to: address.connect.clone(), since: Instant::now(), sender });
        }
        drop(idle);
        if status.is_success() {
            return Ok(body);
        }
        let reason = status.canonical_reason().unwrap_or_default();
        Err(format!("the webhook answered {} {reason}", status.as_u16()))
    }

    fn take(&self, address: &Address) -> Option<Sender> {
        let mut idle = self.idle.lock();
        idle.retain(|idle| {
            idle.to == address.connect
                && idle.since.elapsed() < IDLE_TIME_MAX
                && !idle.sender.is_closed()
        });
        idle.pop().map(|idle| idle.sender)
    }
}

fn connector(ca_bundle: &str) -> Result<TlsConnector, String> {
    let mut pem = codec::base64::decode(ca_bundle).map_err(|error| error.to_string())?;
    if pem.trim_ascii().is_empty() {
        pem = SYSTEM_ROOTS.iter().find_map(|file| std::fs::read(file).ok()).unwrap_or_default();
    }
    let certificates: Vec<_> =
        CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok).collect();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let trust = Trust::new(certificates, provider.clone())?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(trust))
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

async fn connect(connector: &TlsConnector, address: &Address) -> Result<Sender, String> {
    let (host, port) = &address.connect;
    let tcp = TcpStream::connect((host.trim_matches(['[', ']']), *port)).await;
    let tcp = tcp.map_err(|error| format!("dial tcp {host}:{port}: {error}"))?;
    let name = ServerName::try_from(address.host.trim_matches(['[', ']']).to_owned())
        .map_err(|error| error.to_string())?;
    let tls = connector.connect(name, tcp).await.map_err(|error| error.to_string())?;
    let connection = hyper::client::conn::http1::handshake(TokioIo::new(tls)).await;
    let (sender, connection) = connection.map_err(|error| error.to_string())?;
    // Ends when its sender is dropped, or the webhook closes it.
    tokio::spawn(connection);
    Ok(sender)
}

fn request(address: &Address, body: Bytes) -> Result<Request<Full<Bytes>>, String> {
    Request::post(format!("{}{}", address.path(), timeout_query(address)))
        .header(header::HOST, &address.host)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json")
        .body(Full::new(body))
        .map_err(|error| error.to_string())
}

/// The webhook is told how long it has.
fn timeout_query(address: &Address) -> &'static str {
    if address.path().contains('?') { "&timeout=30s" } else { "?timeout=30s" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_off_urls() {
        let cases = [
            ("https://a.b/convert", "https://a.b:443/convert?timeout=30s"),
            ("https://127.0.0.1:8443", "https://127.0.0.1:8443/?timeout=30s"),
        ];
        for (url, expected) in cases {
            assert_eq!(Address::of_url(url).unwrap().shown(), expected);
        }
        assert!(Address::of_url("http://a").is_err());
    }
}
