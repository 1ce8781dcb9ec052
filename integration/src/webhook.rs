//! A webhook that the server under test calls: HTTPS with its own certificate, responses by the test.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::PrivateKeyDer;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use crate::http::runtime;

/// Answers until it is dropped.
pub struct Webhook {
    address: SocketAddr,
    /// PEM, as `caBundle` wants it.
    pub ca_bundle: String,
    counts: Arc<Counts>,
    server: AbortHandle,
}

#[derive(Default)]
struct Counts {
    calls: AtomicUsize,
    connections: AtomicUsize,
    /// Of the last request.
    headers: std::sync::Mutex<http::HeaderMap>,
}

/// What it answers.
pub enum Reply {
    Json(Value),
    /// Any status, headers and body.
    Raw(Response<Bytes>),
    /// Nothing, until the caller gives up.
    Never,
}

type Respond = Arc<dyn Fn(&str, &[u8]) -> Reply + Send + Sync>;

/// What a Service with this name is called by those who call it; certificates are for this name, too.
const SERVICE: (&str, &str) = ("default", "exchanges-webhook");

impl Webhook {
    /// Starts one that makes of each JSON body the JSON that it answers.
    pub fn start(respond: impl Fn(Value) -> Value + Send + Sync + 'static) -> Self {
        Self::by_path(move |_, asked| respond(asked))
    }

    /// The same, by the path of the request.
    pub fn by_path(respond: impl Fn(&str, Value) -> Value + Send + Sync + 'static) -> Self {
        Self::with_body(move |path, asked| Reply::Json(respond(path, parse(asked))))
    }

    /// Starts one that may misbehave.
    pub fn start_with(respond: impl Fn(Value) -> Reply + Send + Sync + 'static) -> Self {
        Self::with_body(move |_, asked| respond(parse(asked)))
    }

    /// Starts one that reads bodies to the byte.
    pub fn with_body(respond: impl Fn(&str, &[u8]) -> Reply + Send + Sync + 'static) -> Self {
        let (namespace, service) = SERVICE;
        let names = ["127.0.0.1".to_owned(), format!("{service}.{namespace}.svc")];
        let own = rcgen::generate_simple_self_signed(names);
        let own = own.expect("a certificate can be made");
        let ca_bundle = STANDARD.encode(own.cert.pem());
        let key = PrivateKeyDer::Pkcs8(own.signing_key.serialize_der().into());
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider knows TLS")
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .expect("key and certificate belong together");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.set_nonblocking(true).expect("sockets can be non-blocking");
        let address = listener.local_addr().expect("a bound socket has an address");
        let counts = Arc::new(Counts::default());
        let server = runtime().spawn(serve(listener, acceptor, Arc::new(respond), counts.clone()));
        Self { address, ca_bundle, counts, server: server.abort_handle() }
    }

    /// A kubeconfig that leads here, for flags that name one.
    pub fn kubeconfig(&self, path: &str) -> String {
        serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "hook", "cluster": {
                "server": self.url(path),
                "certificate-authority-data": self.ca_bundle,
            }}],
            "contexts": [{"name": "hook", "context": {"cluster": "hook"}}],
            "current-context": "hook",
        })
        .to_string()
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// How many requests it has got so far.
    pub fn calls(&self) -> usize {
        self.counts.calls.load(Ordering::SeqCst)
    }

    /// The headers of the last request.
    pub fn last_headers(&self) -> http::HeaderMap {
        self.counts.headers.lock().expect("no thread panics while holding it").clone()
    }

    /// How many connections these came over.
    pub fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(
    listener: std::net::TcpListener,
    acceptor: TlsAcceptor,
    respond: Respond,
    counts: Arc<Counts>,
) {
    let listener = TcpListener::from_std(listener).expect("the runtime takes the socket");
    while let Ok((tcp, _)) = listener.accept().await {
        let (acceptor, respond, counts) = (acceptor.clone(), respond.clone(), counts.clone());
        tokio::spawn(async move {
            // A client that does not trust the certificate closes the connection.
            let Ok(tls) = acceptor.accept(tcp).await else { return };
            counts.connections.fetch_add(1, Ordering::SeqCst);
            let answer = service_fn(|request| answer(request, &respond, &counts));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(tls), answer).await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    respond: &Respond,
    counts: &Counts,
) -> Result<Response<Full<Bytes>>, Infallible> {
    counts.calls.fetch_add(1, Ordering::SeqCst);
    *counts.headers.lock().expect("no thread panics while holding it") = request.headers().clone();
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
    let answer = match respond(&path, &body.unwrap_or_default()) {
        Reply::Json(answer) => answer.to_string(),
        Reply::Raw(response) => return Ok(response.map(Full::new)),
        Reply::Never => std::future::pending().await,
    };
    let response = Response::builder().header("content-type", "application/json");
    Ok(response.body(Full::new(answer.into())).expect("a plain response"))
}

/// Null: it is no JSON.
fn parse(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_default()
}
