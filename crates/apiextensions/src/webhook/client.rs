//! Calls a webhook over HTTPS.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use ::client::verifier::Trust;
use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{body::Incoming, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::{CertificateError, ClientConfig};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Where a webhook is.
pub(super) struct Address {
    /// What to connect to; the name that its certificate has may be another one.
    pub(super) connect: (String, u16),
    pub(super) host: String,
    /// The host, and the port where it was given.
    pub(super) authority: String,
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
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        Ok(Self { connect: (host.clone(), port), host, authority, path })
    }

    fn path(&self) -> &str {
        if self.path.is_empty() { "/" } else { &self.path }
    }

    fn shown(&self) -> String {
        format!("https://{}{}?timeout=30s", self.authority, self.path())
    }

    /// Why nothing was heard from there.
    pub(super) fn unreachable(&self, why: &str) -> String {
        format!("Post {}: {why}", meta::field::quote(&self.shown()))
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
        let answer = match tokio::time::timeout(TIMEOUT, self.call(address, body)).await {
            Ok(answer) => answer,
            Err(_) => Err("context deadline exceeded".to_owned()),
        };
        answer.map_err(|why| address.unreachable(&why))?.content()
    }

    async fn call(&self, address: &Address, body: Bytes) -> Result<Answer, String> {
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
    ) -> Result<Answer, String> {
        let code = answer.status().as_u16();
        let content_type = answer.headers().get(header::CONTENT_TYPE);
        let content_type = content_type.and_then(|text| text.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_owned();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(Idle { to: address.connect.clone(), since: Instant::now(), sender });
        }
        Ok(Answer { code, content_type, body })
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

/// What a webhook said, whatever it is.
struct Answer {
    code: u16,
    content_type: String,
    body: Bytes,
}

impl Answer {
    /// The body of a success. Err: what client-go makes of any other code.
    fn content(self) -> Result<Bytes, String> {
        let Self { code, content_type, body } = self;
        if (200..=206).contains(&code) {
            let empty = || {
                format!(
                    "0-length response with status code: {code} and content type: {content_type}"
                )
            };
            return if body.is_empty() { Err(empty()) } else { Ok(body) };
        }
        let options = codec::json::DecodeOptions { strict: false };
        let status = codec::json::decode_any(&body, options).map(|decoded| decoded.value);
        let status = status.ok().filter(|status| status.str_at(&["kind"]) == "Status");
        if let Some(status) = status {
            return Err(status.str_at(&["message"]).to_owned());
        }
        let is_text = content_type.is_empty() || content_type.starts_with("text/");
        let said = if is_text { String::from_utf8_lossy(&body) } else { "unknown".into() };
        Err(generic_message(code, said.trim()))
    }
}

/// How client-go tells of a code without a `Status`.
fn generic_message(code: u16, said: &str) -> String {
    let message = match code {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        406 | 415 if matches!(said, "" | "unknown") => {
            "the server was unable to respond with a content type that the client supports"
        }
        403 | 406 | 415 => said,
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be \
             processing the request"
        }
        500.. => {
            let said = meta::field::quote(said);
            return format!(
                "an error on the server ({said}) has prevented the request from succeeding"
            );
        }
        _ => {
            return format!(
                "the server responded with the status code {code} but did not return more details"
            );
        }
    };
    message.to_owned()
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
    let tcp = dial(host.trim_matches(['[', ']']), *port).await?;
    let name = ServerName::try_from(address.host.trim_matches(['[', ']']).to_owned())
        .map_err(|error| error.to_string())?;
    let tls = connector.connect(name, tcp).await.map_err(|error| handshake_failure(&error))?;
    let connection = hyper::client::conn::http1::handshake(TokioIo::new(tls)).await;
    let (sender, connection) = connection.map_err(|error| error.to_string())?;
    // Ends when its sender is dropped, or the webhook closes it.
    tokio::spawn(connection);
    Ok(sender)
}

/// Tries every address of a name; what is said is said of the last one, in Go's words.
async fn dial(host: &str, port: u16) -> Result<TcpStream, String> {
    let no_such_host = || format!("dial tcp: lookup {host}: no such host");
    let found = tokio::net::lookup_host((host, port)).await.map_err(|_| no_such_host())?;
    let mut failure = no_such_host();
    for address in found {
        match TcpStream::connect(address).await {
            Ok(tcp) => return Ok(tcp),
            Err(error) => {
                let why = match error.kind() {
                    io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
                    _ => error.to_string(),
                };
                failure = format!("dial tcp {address}: {why}");
            }
        }
    }
    Err(failure)
}

fn handshake_failure(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "tls: failed to verify certificate: x509: certificate signed by unknown authority"
                .into()
        }
        _ => error.to_string(),
    }
}

fn request(address: &Address, body: Bytes) -> Result<Request<Full<Bytes>>, String> {
    Request::post(format!("{}{}", address.path(), timeout_query(address)))
        .header(header::HOST, &address.authority)
        .header(header::USER_AGENT, "kube-apiserver-admission")
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json, */*")
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
    fn what_is_no_success_is_told_as_client_go_tells_it() {
        let cases = [
            (
                200,
                "application/json",
                "",
                "0-length response with status code: 200 and content type: application/json",
            ),
            (
                500,
                "application/json",
                "boom",
                r#"an error on the server ("unknown") has prevented the request from succeeding"#,
            ),
            (
                500,
                "text/plain",
                "boom\n",
                r#"an error on the server ("boom") has prevented the request from succeeding"#,
            ),
            (
                404,
                "text/plain",
                "404 page not found",
                "the server could not find the requested resource",
            ),
            (404, "application/json", r#"{"kind":"Status","message":"gone"}"#, "gone"),
            (403, "", "not you", "not you"),
            (
                302,
                "text/html",
                "",
                "the server responded with the status code 302 but did not return more details",
            ),
        ];
        for (code, content_type, body, expected) in cases {
            let (content_type, body) =
                (content_type.to_owned(), Bytes::from_static(body.as_bytes()));
            let answer = Answer { code, content_type, body };
            assert_eq!(answer.content(), Err(expected.to_owned()));
        }
    }

    #[test]
    fn addresses_are_read_off_urls() {
        let cases = [
            ("https://a.b/convert", "https://a.b/convert?timeout=30s"),
            ("https://127.0.0.1:8443", "https://127.0.0.1:8443/?timeout=30s"),
        ];
        for (url, expected) in cases {
            assert_eq!(Address::of_url(url).unwrap().shown(), expected);
        }
        assert!(Address::of_url("http://a").is_err());
    }
}
