//! Servers for tests, and their certificates.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, NameConstraints,
};
use rustls::{RootCertStore, ServerConfig, crypto::aws_lc_rs, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::AbortHandle,
};
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer as _, X509Certificate};

pub(crate) struct Ca(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key in PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Ca {
    pub(crate) fn new() -> Self {
        Self::constrained(None)
    }

    /// Each has a name of its own: with the same one, another CA would pass for this one with a
    /// wrong signature.
    pub(crate) fn constrained(constraints: Option<NameConstraints>) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("ca {}", NUMBER.fetch_add(1, Ordering::SeqCst));
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params.name_constraints = constraints;
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    pub(crate) fn pem(&self) -> Vec<u8> {
        self.0.pem().into_bytes()
    }

    /// The first name is the subject's, too.
    pub(crate) fn sign(&self, names: &[&str]) -> Pair {
        let all: Vec<_> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(all).expect("valid names");
        params.distinguished_name.push(DnType::CommonName, names[0]);
        self.sign_params(&params)
    }

    /// A subject, and no name that counts.
    pub(crate) fn sign_common_name(&self, name: &str) -> Pair {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        self.sign_params(&params)
    }

    fn sign_params(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate").pem();
        Pair { certificate, key: key.serialize_pem() }
    }
}

/// Answers every request with a line of what it has seen.
pub(crate) struct TlsServer {
    pub(crate) address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    task: AbortHandle,
}

/// What a server speaks, best first.
pub(crate) const HTTP2: &[&str] = &["h2", "http/1.1"];
pub(crate) const HTTP1: &[&str] = &["http/1.1"];

impl TlsServer {
    /// `clients`: the CA of clients' certificates, which a client may or may not have.
    pub(crate) async fn start(own: &Pair, alpn: &[&str], clients: Option<&Ca>) -> Self {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("the provider knows TLS");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let mut roots = RootCertStore::empty();
                roots.add(ca.0.der().clone()).expect("a root");
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = verifier.allow_unauthenticated().build().expect("a verifier");
                builder.with_client_cert_verifier(verifier)
            }
        };
        let chain = vec![CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
        let mut config = builder.with_single_cert(chain, key).expect("they belong together");
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));

        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let accepted = Arc::new(AtomicUsize::new(0));
        let counted = accepted.clone();
        let task = tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(tcp, acceptor.clone()));
            }
        });
        Self { address, accepted, task: task.abort_handle() }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(tcp: TcpStream, acceptor: TlsAcceptor) {
    // A client that does not trust the certificate goes away.
    let Ok(tls) = acceptor.accept(tcp).await else { return };
    let certificate = tls.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let client = certificate.map(common_name).unwrap_or_default();
    let answer = service_fn(move |request| answer(request, client.clone()));
    let builder = auto::Builder::new(TokioExecutor::new());
    let _ = builder.serve_connection(TokioIo::new(tls), answer).await;
}

fn common_name(certificate: &CertificateDer<'_>) -> String {
    let (_, parsed) = X509Certificate::from_der(certificate).expect("a certificate");
    let name = parsed.subject().iter_common_name().next().expect("a common name");
    name.as_str().expect("text").to_owned()
}

async fn answer(
    request: Request<Incoming>,
    client: String,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let header = |name| head.headers.get(name).map(|value| value.to_str().unwrap());
    let host = head.uri.authority().map(ToString::to_string);
    let host = host.or(header(header::HOST).map(str::to_owned)).unwrap_or_default();
    let path = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let authorization = header(header::AUTHORIZATION).unwrap_or("-");
    let encoding = header(header::ACCEPT_ENCODING).unwrap_or("-");
    let seen = format!(
        "{:?} {} {path} host={host} client={client} authorization={authorization} \
         accept-encoding={encoding} body={}",
        head.version,
        head.method,
        body.len()
    );
    Ok(Response::new(Full::new(seen.into())))
}

/// Answers as the test says, byte by byte, over plain TCP.
pub(crate) struct RawServer {
    pub(crate) address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
    task: AbortHandle,
}

/// The server's side of a connection.
pub(crate) struct Peer {
    pub(crate) tcp: TcpStream,
    requests: Arc<AtomicUsize>,
}

pub(crate) const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

impl RawServer {
    /// `serve` gets the number of the connection, from 0, and the connection.
    pub(crate) async fn start<F>(serve: impl Fn(usize, Peer) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let accepted = Arc::new(AtomicUsize::new(0));
        let requests = Arc::new(AtomicUsize::new(0));
        let (count, counted) = (accepted.clone(), requests.clone());
        let task = tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(number, Peer { tcp, requests: counted.clone() }));
            }
        });
        Self { address, accepted, requests, task: task.abort_handle() }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Peer {
    /// Reads a request with its body; None: the client has closed the connection.
    pub(crate) async fn request(&mut self) -> Option<String> {
        let mut read = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&read).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                if body.len() >= length.map_or(0, |length| length.parse().expect("a number")) {
                    self.requests.fetch_add(1, Ordering::SeqCst);
                    return Some(text);
                }
            }
            if self.tcp.read_buf(&mut read).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        // A client that is gone is the test's business.
        let _ = self.tcp.write_all(bytes).await;
    }

    /// Answers every request until the client goes.
    pub(crate) async fn serve_all(&mut self) {
        while self.request().await.is_some() {
            self.write(OK).await;
        }
    }
}
