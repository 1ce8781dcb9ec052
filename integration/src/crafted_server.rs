//! Servers that the server under test calls, and that do what no HTTP library would do.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::certificates::Pair;
use crate::http::runtime;
use crate::http2;

/// What it does with a request.
pub enum Behaviour {
    /// HTTP/1.1: sends this byte by byte, with a pause between two bytes.
    Trickle { bytes: Vec<u8>, pause: Duration },
    /// HTTP/2: sends these frames again and again, made for the stream of the request.
    Flood(fn(u32) -> Vec<u8>),
}

/// Answers until it is dropped.
pub struct CraftedServer {
    port: u16,
    requests: Arc<AtomicUsize>,
    serving: AbortHandle,
}

impl CraftedServer {
    pub fn start(pair: &Pair, behaviour: Behaviour) -> Self {
        let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes());
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("the provider knows TLS")
                .with_no_client_auth()
                .with_single_cert(vec![certificate.expect("PEM")], key.expect("PEM"))
                .expect("key and certificate belong together");
        if matches!(behaviour, Behaviour::Flood(_)) {
            config.alpn_protocols = vec![b"h2".to_vec()];
        }
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("sockets can be non-blocking");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let requests = Arc::new(AtomicUsize::new(0));
        let (seen, behaviour) = (requests.clone(), Arc::new(behaviour));
        let serving = runtime().spawn(async move {
            let listener = TcpListener::from_std(listener).expect("the runtime takes the socket");
            // Connections end with the server.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, seen) = (acceptor.clone(), seen.clone());
                let behaviour = behaviour.clone();
                connections.spawn(async move {
                    let tls = acceptor.accept(tcp).await?;
                    match &*behaviour {
                        Behaviour::Trickle { bytes, pause } => {
                            trickle(tls, bytes, *pause, &seen).await
                        }
                        Behaviour::Flood(frames) => flood(tls, *frames, &seen).await,
                    }
                });
            }
        });
        Self { port, requests, serving: serving.abort_handle() }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many requests it has got so far.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

impl Drop for CraftedServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn trickle(
    mut tls: TlsStream<TcpStream>,
    bytes: &[u8],
    pause: Duration,
    seen: &AtomicUsize,
) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tls.read_u8().await?);
    }
    seen.fetch_add(1, Ordering::SeqCst);
    for byte in bytes {
        tls.write_all(&[*byte]).await?;
        tls.flush().await?;
        tokio::time::sleep(pause).await;
    }
    Ok(())
}

async fn flood(
    mut tls: TlsStream<TcpStream>,
    frames: fn(u32) -> Vec<u8>,
    seen: &AtomicUsize,
) -> io::Result<()> {
    tls.write_all(&http2::frame(http2::SETTINGS, 0, 0, &[])).await?;
    tls.flush().await?;
    let mut preface = [0; http2::PREFACE.len()];
    tls.read_exact(&mut preface).await?;
    let stream = loop {
        let mut head = [0; 9];
        tls.read_exact(&mut head).await?;
        let [a, b, c, kind, _, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        tls.read_exact(&mut payload).await?;
        if kind == http2::HEADERS {
            break u32::from_be_bytes(stream);
        }
    };
    seen.fetch_add(1, Ordering::SeqCst);
    let frames = frames(stream).repeat(500);
    loop {
        tls.write_all(&frames).await?;
    }
}
