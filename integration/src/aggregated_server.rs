//! An aggregated API server of which a test decides every answer: HTTPS with its own certificate, HTTP/1.1
//! and HTTP/2, and a note of everything that it was asked.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use crate::http::runtime;

/// Answers until it is dropped.
pub struct AggregatedServer {
    address: SocketAddr,
    /// PEM in base64, as `caBundle` wants it.
    pub ca_bundle: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    server: AbortHandle,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: String,
    /// With its query.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// The certificate that the client showed, DER.
    pub certificate: Option<Vec<u8>>,
    pub http2: bool,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect()
    }
}

/// The body of an answer.
pub type AnswerBody = UnsyncBoxBody<Bytes, Infallible>;

type Respond = Arc<dyn Fn(&Seen) -> Response<AnswerBody> + Send + Sync>;

impl AggregatedServer {
    /// `name` is what its certificate is for: `service.namespace.svc`. It speaks the protocols of `alpn`.
    pub fn start(
        name: &str,
        alpn: &[&str],
        respond: impl Fn(&Seen) -> Response<AnswerBody> + Send + Sync + 'static,
    ) -> Self {
        let own = rcgen::generate_simple_self_signed([name.to_owned()]);
        let own = own.expect("a certificate can be made");
        let ca_bundle = STANDARD.encode(own.cert.pem());
        let key = PrivateKeyDer::Pkcs8(own.signing_key.serialize_der().into());
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("the provider knows TLS")
                .with_client_cert_verifier(Arc::new(AnyCertificate))
                .with_single_cert(vec![own.cert.der().clone()], key)
                .expect("key and certificate belong together");
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.set_nonblocking(true).expect("sockets can be non-blocking");
        let address = listener.local_addr().expect("a bound socket has an address");
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let (noted, respond): (_, Respond) = (seen.clone(), Arc::new(respond));
        let server = runtime().spawn(async move {
            let listener = TcpListener::from_std(listener).expect("the runtime takes the socket");
            // Connections end with the server.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, noted) = (acceptor.clone(), noted.clone());
                connections.spawn(serve(tcp, acceptor, noted, respond.clone()));
            }
        });
        Self { address, ca_bundle, seen, server: server.abort_handle() }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// All requests so far but those that the aggregator makes itself.
    pub fn seen(&self) -> Vec<Seen> {
        let seen = self.seen.lock().expect("not poisoned");
        let own = ["system:kube-aggregator", "system:aggregator"];
        let is_own =
            |seen: &&Seen| seen.header("x-remote-user").is_some_and(|user| own.contains(&user));
        seen.iter().filter(|seen| !is_own(seen)).cloned().collect()
    }

    /// Forgets the requests so far.
    pub fn forget(&self) {
        self.seen.lock().expect("not poisoned").clear();
    }
}

impl Drop for AggregatedServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// An answer with a body that is there.
pub fn answer(code: u16, content_type: &str, body: impl Into<Bytes>) -> Response<AnswerBody> {
    Response::builder()
        .status(code)
        .header("content-type", content_type)
        .body(Full::new(body.into()).boxed_unsync())
        .expect("a valid answer")
}

/// Discovery of one resource, `flunders`, and 404 for all else: what every aggregated server has.
pub fn discovery(group: &str, seen: &Seen) -> Response<AnswerBody> {
    if seen.path != format!("/apis/{group}/v1") {
        return answer(404, "text/plain", "404 page not found\n");
    }
    let list: Value = json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": format!("{group}/v1"),
        "resources": [{
            "name": "flunders",
            "singularName": "flunder",
            "namespaced": true,
            "kind": "Flunder",
            "verbs": ["get", "list", "watch", "create"],
        }],
    });
    answer(200, "application/json", list.to_string())
}

async fn serve(
    tcp: TcpStream,
    acceptor: TlsAcceptor,
    seen: Arc<Mutex<Vec<Seen>>>,
    respond: Respond,
) {
    // A client that does not trust the certificate closes the connection.
    let Ok(tls) = acceptor.accept(tcp).await else { return };
    let shown = tls.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let certificate = shown.map(|certificate| certificate.to_vec());
    let service = service_fn(|mut request: Request<Incoming>| {
        let (seen, respond) = (seen.clone(), respond.clone());
        let certificate = certificate.clone();
        async move {
            let upgrade = hyper::upgrade::on(&mut request);
            let (head, body) = request.into_parts();
            let body =
                body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let path = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
            let noted = Seen {
                method: head.method.to_string(),
                path,
                headers: head.headers,
                body,
                certificate,
                http2: head.version == http::Version::HTTP_2,
            };
            seen.lock().expect("not poisoned").push(noted.clone());
            let response = respond(&noted);
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                tokio::spawn(async move {
                    let Ok(upgraded) = upgrade.await else { return };
                    let (mut read, mut write) = tokio::io::split(TokioIo::new(upgraded));
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
            Ok::<_, Infallible>(response)
        }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let _ = builder.serve_connection_with_upgrades(TokioIo::new(tls), service).await;
}

/// Asks for a certificate, and takes any or none.
#[derive(Debug)]
struct AnyCertificate;

impl ClientCertVerifier for AnyCertificate {
    fn root_hint_subjects(&self) -> &[rustls::DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: rustls_pki_types::UnixTime,
    ) -> Result<rustls::server::danger::ClientCertVerified, rustls::Error> {
        Ok(rustls::server::danger::ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
