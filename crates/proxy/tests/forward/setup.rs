//! A front that forwards everything, a client that writes bytes, and a backend that does as it is told.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use client::{Client, Config, Limits, Tls, Trust};
use http::{Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use proxy::{Options, Target, forward};
use rustls::{
    ClientConfig,
    pki_types::{CertificateDer, ServerName},
};
use serve::{
    Body,
    connection::{Handler, HandlerFuture, Peer},
    listener::{Listener, Server, Sharing},
    tls::TlsOptions,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::AbortHandle,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// The proxy, behind the real listener.
pub(crate) struct Front {
    server: Server,
    certificate: CertificateDer<'static>,
}

struct Forwarder {
    client: Client,
    backend: SocketAddr,
    options: Options,
}

impl Handler for Forwarder {
    fn handle(&self, request: Request<Incoming>, _peer: Arc<Peer>) -> HandlerFuture {
        let path = request.uri().path_and_query().expect("a path").clone();
        let url = Uri::builder()
            .scheme("http")
            .authority(self.backend.to_string())
            .path_and_query(path)
            .build()
            .expect("a URL");
        let target = Target { client: self.client.clone(), url, connect_to: None };
        let options = self.options.clone();
        Box::pin(async move {
            forward(request, target, options).await.unwrap_or_else(|error| {
                let mut response = Response::new(Body::from(error.to_string()));
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                response
            })
        })
    }
}

impl Front {
    pub(crate) fn start(backend: &Backend, options: Options) -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a pair");
        let dir = tempfile::tempdir().expect("a directory");
        let (cert_file, key_file) = (dir.path().join("crt"), dir.path().join("key"));
        std::fs::write(&cert_file, made.cert.pem()).expect("writable");
        std::fs::write(&key_file, made.signing_key.serialize_pem()).expect("writable");
        let (cert_file, key_file) = (cert_file.into(), key_file.into());
        let tls = TlsOptions { cert_file, key_file, ..TlsOptions::default() };
        let tls = serve::tls::Tls::new(&tls).expect("valid options");
        let config = Config {
            tls: Tls { trust: Trust::Insecure, ..Tls::default() },
            limits: Limits::for_proxy(),
            ..Config::default()
        };
        let client = Client::new(config).expect("valid settings");
        let handler = Forwarder { client, backend: backend.address, options };
        let address = "127.0.0.1:0".parse().expect("an address");
        let listener = Listener::bind(address, Sharing::default()).expect("bound");
        let limits = serve::connection::Limits::default();
        let server = listener.serve(tls, Arc::new(handler), limits, &background::Tasks::default());
        Self { server, certificate: made.cert.der().clone() }
    }

    pub(crate) async fn connect(&self) -> Connection {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider knows TLS")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tcp = TcpStream::connect(self.server.address()).await.expect("it listens");
        let name = ServerName::try_from("localhost").expect("a name");
        let tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.expect("TLS");
        Connection { tls, read: Vec::new() }
    }

    /// One request on a connection of its own; the whole response.
    pub(crate) async fn get(&self, path: &str) -> String {
        let mut client = self.connect().await;
        client.write(&format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await;
        client.read_to_end().await
    }
}

pub(crate) struct Connection {
    tls: TlsStream<TcpStream>,
    read: Vec<u8>,
}

impl Connection {
    pub(crate) async fn write(&mut self, text: &str) {
        self.tls.write_all(text.as_bytes()).await.expect("an open connection");
    }

    pub(crate) async fn shutdown(&mut self) {
        let _ = self.tls.shutdown().await;
    }

    /// Everything that comes until the server closes.
    pub(crate) async fn read_to_end(&mut self) -> String {
        while self.read_some().await {}
        String::from_utf8_lossy(&std::mem::take(&mut self.read)).into_owned()
    }

    /// The head of a response.
    pub(crate) async fn read_head(&mut self) -> String {
        self.read_until("\r\n\r\n").await
    }

    pub(crate) async fn read_until(&mut self, end: &str) -> String {
        loop {
            let found = self.read.windows(end.len()).position(|part| part == end.as_bytes());
            if let Some(at) = found {
                let rest = self.read.split_off(at + end.len());
                let head = std::mem::replace(&mut self.read, rest);
                return String::from_utf8_lossy(&head).into_owned();
            }
            let more = self.read_some().await;
            assert!(more, "closed after {}", String::from_utf8_lossy(&self.read));
        }
    }

    /// Reads and forgets; None at the end.
    pub(crate) async fn skip_some(&mut self) -> Option<usize> {
        if self.read.is_empty() && !self.read_some().await {
            return None;
        }
        let count = self.read.len();
        self.read.clear();
        Some(count)
    }

    async fn read_some(&mut self) -> bool {
        let reading = self.tls.read_buf(&mut self.read);
        let count = tokio::time::timeout(LONG, reading).await.expect("no test waits this long");
        // Without a close_notify is closed, too.
        count.unwrap_or(0) > 0
    }
}

const LONG: Duration = Duration::from_secs(30);

pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    open: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<String>>>,
    task: AbortHandle,
}

/// The backend's side of a connection.
pub(crate) struct BackendPeer {
    pub(crate) tcp: TcpStream,
    seen: Arc<Mutex<Vec<String>>>,
}

struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Backend {
    pub(crate) async fn start<F>(serve: impl Fn(usize, BackendPeer) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("bound");
        let (open, seen) = (Arc::new(AtomicUsize::new(0)), Arc::<Mutex<Vec<String>>>::default());
        let (counted, noted) = (open.clone(), seen.clone());
        let task = tokio::spawn(async move {
            for number in 0.. {
                let Ok((tcp, _)) = listener.accept().await else { return };
                counted.fetch_add(1, Ordering::SeqCst);
                let open = Open(counted.clone());
                let served = serve(number, BackendPeer { tcp, seen: noted.clone() });
                tokio::spawn(async move {
                    served.await;
                    drop(open);
                });
            }
        });
        Self { address, open, seen, task: task.abort_handle() }
    }

    /// Says the same to every request.
    pub(crate) async fn answering(answer: impl Into<String>) -> Self {
        let answer: Arc<str> = answer.into().into();
        Self::start(move |_, mut peer| {
            let answer = answer.clone();
            async move {
                while peer.request().await.is_some() {
                    peer.write(answer.as_bytes()).await;
                }
            }
        })
        .await
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// The heads of all requests, and what came with them.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("not poisoned").clone()
    }

    pub(crate) async fn all_closed(&self) {
        self.open_at_most(0).await;
    }

    pub(crate) async fn open_at_most(&self, count: usize) {
        let waiting = async {
            while self.open() > count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LONG, waiting).await.expect("connections are closed");
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl BackendPeer {
    /// The head of a request, and nothing after it. None: closed.
    pub(crate) async fn head(&mut self) -> Option<String> {
        let mut read = Vec::new();
        while !read.ends_with(b"\r\n\r\n") {
            read.push(self.tcp.read_u8().await.ok()?);
        }
        let text = String::from_utf8_lossy(&read).into_owned();
        self.seen.lock().expect("not poisoned").push(text.clone());
        Some(text)
    }

    /// A request without a body.
    pub(crate) async fn request(&mut self) -> Option<String> {
        self.head().await
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        // A proxy that is gone is the test's business.
        let _ = self.tcp.write_all(bytes).await;
    }
}
