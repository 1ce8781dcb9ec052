//! Calls a conversion webhook: its address, its deadline, and the error of a failed call.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use client::{
    Call, CertificateMetrics, Client, Config, Dial, Error, HostPort, Tls, Trust, clean_path,
    generic_message, go_text, successful_body, url_error,
};
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use tokio::time::Instant;

const TIMEOUT: Duration = Duration::from_secs(30);
/// What is read of an answer to a request of so many bytes: converted objects are about as long as they were.
fn answer_bytes_max(request_bytes: usize) -> usize {
    (ANSWER_BYTES_MIN + 4 * request_bytes).min(ANSWER_BYTES_MAX)
}

const ANSWER_BYTES_MIN: usize = 16 * 1024 * 1024;
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The memory that the decoded answer may take, without its texts: an item of a list takes up to 16 times its text.
pub(super) fn answer_tree_bytes_max(request_bytes: usize) -> usize {
    meta::limits::TREE_BYTES_MAX + 16 * request_bytes
}

/// Where a webhook is.
#[derive(Debug)]
pub(super) struct Address {
    /// The host, and the port where it was given.
    authority: String,
    path: String,
    /// The address behind a service; None: the host itself.
    pub(super) connect_to: Option<HostPort>,
}

impl Address {
    pub(super) fn of_url(url: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|error| format!("{url}: {error}"))?;
        if uri.scheme_str() != Some("https") {
            return Err(format!("{url}: the scheme must be https"));
        }
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let path = format!("{}{query}", clean_path(uri.path()));
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        Ok(Self { authority, path, connect_to: None })
    }

    /// Its certificate must be for `<name>.<namespace>.svc`, whatever its address is.
    pub(super) fn of_service(namespace: &str, name: &str, port: u16, path: &str) -> Self {
        let authority = format!("{name}.{namespace}.svc:{port}");
        Self { authority, path: clean_path(path), connect_to: None }
    }

    /// The deadline is passed to the webhook as `timeout`.
    fn url(&self) -> Result<Uri, http::uri::InvalidUri> {
        let separator = if self.path.contains('?') { '&' } else { '?' };
        format!("https://{}{}{separator}timeout=30s", self.authority, self.path).parse()
    }

    /// Why there is no response from there, in the words of Go.
    pub(super) fn unreachable(&self, why: &str) -> String {
        let url = format!("https://{}{}?timeout=30s", self.authority, self.path);
        url_error(&Method::POST, &url, why)
    }
}

/// Trusts the CA bundle of the definition, or the host's roots. Connections are kept for the next
/// call.
pub(super) struct Caller {
    /// Err: the bundle cannot be used; each call says so.
    client: Result<Client, String>,
}

impl Caller {
    /// `ca_bundle` is PEM in base64.
    pub(super) fn new(ca_bundle: &str, dial: Option<Arc<dyn Dial>>) -> Self {
        Self { client: new_client(ca_bundle, dial) }
    }

    pub(super) async fn post(&self, address: &Address, body: Bytes) -> Result<Bytes, String> {
        let client = self.client.as_ref().map_err(|why| address.unreachable(why))?;
        let call = Call {
            method: Method::POST,
            url: address.url().map_err(|error| address.unreachable(&error.to_string()))?,
            headers: headers(),
            response_bytes_max: answer_bytes_max(body.len()),
            body,
            connect_to: address.connect_to.clone(),
            deadline: Instant::now() + TIMEOUT,
        };
        match client.call(call).await {
            Ok(response) => successful_body(response).map_err(|error| error.message),
            Err(Error::Redirect { status, .. }) => Err(generic_message(status.as_u16(), "")),
            Err(error) => Err(address.unreachable(&go_text(&error))),
        }
    }
}

fn new_client(ca_bundle: &str, dial: Option<Arc<dyn Dial>>) -> Result<Client, String> {
    let pem = codec::base64::decode(ca_bundle).map_err(|error| error.to_string())?;
    let trust = if pem.trim_ascii().is_empty() { Trust::System } else { Trust::Bundle(pem) };
    let certificate_metrics = CertificateMetrics::Webhooks;
    let tls = Tls { trust, certificate_metrics, ..Tls::default() };
    let mut config = Config { tls, ..Config::default() };
    if let Some(dial) = dial {
        config.dial = dial;
    }
    Client::new(config).map_err(|error| go_text(&error.into()))
}

fn headers() -> HeaderMap {
    HeaderMap::from_iter([
        (header::USER_AGENT, HeaderValue::from_static("kube-apiserver-admission")),
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::ACCEPT, HeaderValue::from_static("application/json, */*")),
    ])
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    #[test]
    fn addresses_are_read_off_urls() {
        let cases = [
            ("https://a.b/convert", "https://a.b/convert?timeout=30s"),
            ("https://127.0.0.1:8443", "https://127.0.0.1:8443/?timeout=30s"),
            ("https://a/b?c=d", "https://a/b?c=d&timeout=30s"),
        ];
        for (url, expected) in cases {
            assert_eq!(Address::of_url(url).unwrap().url().unwrap().to_string(), expected);
        }
        let service = Address::of_service("n", "s", 443, "/c");
        assert_eq!(service.unreachable("no"), r#"Post "https://s.n.svc:443/c?timeout=30s": no"#);
        let refused = Address::of_url("http://a").unwrap_err();
        assert_eq!(refused, "http://a: the scheme must be https");
    }

    /// What a client of the API server reads, after `conversion webhook for … failed: `.
    #[tokio::test]
    async fn failures_keep_their_words() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        // Answers every TLS handshake in plain text.
        tokio::spawn(async move {
            while let Ok((mut tcp, _)) = listener.accept().await {
                let _ = tcp.read(&mut [0; 1024]).await;
                let _ = tcp.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            }
        });
        let no_bundle = codec::base64::encode(b"not a certificate");
        let cases = [
            ("", closed, format!("dial tcp {closed}: connect: connection refused")),
            ("", at, "received corrupt message of type InvalidContentType".to_owned()),
            (
                &no_bundle,
                at,
                "unable to load root certificates: no root trust anchors were provided".to_owned(),
            ),
            ("%", at, codec::base64::decode("%").unwrap_err().to_string()),
        ];
        for (bundle, to, why) in cases {
            let address = Address::of_url(&format!("https://{to}/c")).unwrap();
            let failed = Caller::new(bundle, None).post(&address, Bytes::new()).await.unwrap_err();
            assert_eq!(failed, format!(r#"Post "https://{to}/c?timeout=30s": {why}"#));
        }
    }
}
