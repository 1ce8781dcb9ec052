//! A server with a handler for tests, and clients of several kinds.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt as _};
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::body::Body;
use crate::connection::{Handler, HandlerFuture, Limits, Peer};
use crate::listener::{Listener, Server, Sharing};
use crate::tls::testing::{Leaf, SignedLeaf, TestCa};
use crate::tls::{Tls, TlsOptions};

#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) limits: Limits,
    /// Common name of a certificate and the patterns of its flag.
    pub(crate) sni: Vec<(&'static str, &'static str)>,
    pub(crate) min_version: &'static str,
    pub(crate) cipher_suite: &'static str,
    pub(crate) disable_http2: bool,
}

pub(crate) struct TestServer {
    pub(crate) server: Arc<Server>,
    pub(crate) handler: Arc<TestHandler>,
    pub(crate) tls: Arc<Tls>,
    pub(crate) client_ca: TestCa,
    ca: TestCa,
    dir: tempfile::TempDir,
}

impl TestServer {
    pub(crate) fn start(setup: Setup) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (ca, client_ca) = (TestCa::new("server ca"), TestCa::new("client ca"));
        let write = |name: &str, content: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, content).expect("writable");
            path
        };
        let pair = |name: &str, signed: &SignedLeaf| -> (PathBuf, PathBuf) {
            (write(&format!("{name}.crt"), &signed.pem), write(&format!("{name}.key"), &signed.key))
        };
        let (cert_file, key_file) = pair("tls", &ca.sign(&server_leaf("pintle")));
        let named = setup.sni.iter().map(|(common_name, names)| {
            let (cert, key) = pair(common_name, &ca.sign(&server_leaf(common_name)));
            let separator = if names.is_empty() { "" } else { ":" };
            let flag = format!("{},{}{separator}{names}", cert.display(), key.display());
            flag.parse().expect("a valid flag")
        });
        let options = TlsOptions {
            sni: named.collect(),
            cert_file: cert_file.into(),
            key_file: key_file.into(),
            client_ca_file: Some(write("client-ca.crt", &client_ca.pem()).into()),
            min_version: setup.min_version.to_owned(),
            cipher_suites: Some(setup.cipher_suite.to_owned())
                .filter(|suite| !suite.is_empty())
                .into_iter()
                .collect(),
            disable_http2: setup.disable_http2,
            ..TlsOptions::default()
        };
        let tls = Tls::new(&options).expect("valid options");
        let handler = Arc::new(TestHandler::default());
        let address = "127.0.0.1:0".parse().expect("an address");
        let listener = Listener::bind(address, Sharing::default()).expect("bound");
        let tasks = background::Tasks::default();
        let server = Arc::new(listener.serve(tls.clone(), handler.clone(), setup.limits, &tasks));
        Self { server, handler, tls, client_ca, ca, dir }
    }

    pub(crate) fn client(&self) -> Client<'_> {
        Client {
            server: self,
            http2: false,
            tls12: false,
            certificate: None,
            server_name: "localhost",
            config: OnceLock::new(),
        }
    }

    pub(crate) fn write_client_ca(&self, ca: &TestCa) {
        std::fs::write(self.dir.path().join("client-ca.crt"), ca.pem()).expect("writable");
    }

    pub(crate) fn write_serving_cert(&self, common_name: &'static str) {
        let signed = self.ca.sign(&server_leaf(common_name));
        std::fs::write(self.dir.path().join("tls.crt"), signed.pem).expect("writable");
        std::fs::write(self.dir.path().join("tls.key"), signed.key).expect("writable");
    }

    /// Waits for something that another task is about to do.
    pub(crate) async fn eventually(&self, condition: impl Fn(&Self) -> bool) {
        for _ in 0..2000 {
            if condition(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it did not happen within ten seconds");
    }
}

fn server_leaf(common_name: &'static str) -> Leaf {
    match common_name {
        "pintle" | "renewed" => Leaf::server(common_name, &["localhost"]),
        "pinned" => Leaf::server(common_name, &["bar.example", "a.wild.example"]),
        other => Leaf::server(other, &[common_name]),
    }
}

#[derive(Default)]
pub(crate) struct TestHandler {
    running: Arc<AtomicUsize>,
    released: watch::Sender<u64>,
    events_made: Arc<AtomicUsize>,
}

const EVENT_BYTES: usize = 1 << 10;

impl TestHandler {
    /// Lets the requests that wait go on.
    pub(crate) fn release(&self) {
        self.released.send_modify(|count| *count += 1);
    }

    /// Bytes of the events that were made for clients.
    pub(crate) fn event_bytes(&self) -> usize {
        self.events_made.load(Ordering::Relaxed) * EVENT_BYTES
    }

    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }
}

struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Handler for TestHandler {
    fn handle(&self, mut request: Request<Incoming>, peer: Arc<Peer>) -> HandlerFuture {
        self.running.fetch_add(1, Ordering::SeqCst);
        let running = Running(self.running.clone());
        let mut released = self.released.subscribe();
        let events_made = self.events_made.clone();
        let answer = async move {
            let _running = running;
            match request.uri().path() {
                "/whoami" => Response::new(Body::from(describe(&peer))),
                "/wait" => {
                    released.changed().await.expect("the handler outlives its requests");
                    Response::new(Body::from("waited"))
                }
                "/close" => {
                    peer.close();
                    status(StatusCode::UNAUTHORIZED)
                }
                "/connection-close" => {
                    let mut response = status(StatusCode::UNAUTHORIZED);
                    response.headers_mut().insert("connection", "close".parse().expect("valid"));
                    response
                }
                "/empty-400" => status(StatusCode::BAD_REQUEST),
                "/panic" => panic!("asked for"),
                "/list" => {
                    let chunk = |i: usize| Ok(Bytes::from(vec![i as u8; 64 << 10]));
                    Response::new(Body::chunks((0..128).map(chunk)))
                }
                "/events" => {
                    let event = Bytes::from(vec![b'x'; EVENT_BYTES]);
                    let events = futures_util::stream::repeat(event).inspect(move |_| {
                        events_made.fetch_add(1, Ordering::Relaxed);
                    });
                    Response::new(Body::events(events))
                }
                "/quiet" => Response::new(Body::events(futures_util::stream::pending())),
                "/send-by" => {
                    let chunk = |i: usize| Ok(Bytes::from(vec![i as u8; 64 << 10]));
                    let mut body = Body::chunks((0..1024).map(chunk));
                    body.set_send_by(tokio::time::Instant::now() + Duration::from_millis(200));
                    Response::new(body)
                }
                "/body-panic" => Response::new(Body::chunks((0..2).map(|at| match at {
                    0 => Ok(Bytes::from_static(b"good")),
                    _ => panic!("asked for"),
                }))),
                "/upgrade" => {
                    let upgrade = hyper::upgrade::on(&mut request);
                    tokio::spawn(async move {
                        let mut io = TokioIo::new(upgrade.await.expect("upgraded"));
                        let mut buffer = [0; 5];
                        io.read_exact(&mut buffer).await.expect("read");
                        io.write_all(&buffer).await.expect("written");
                        io.flush().await.expect("flushed");
                    });
                    let mut response = status(StatusCode::SWITCHING_PROTOCOLS);
                    response.headers_mut().insert("connection", "upgrade".parse().expect("valid"));
                    response.headers_mut().insert("upgrade", "echo".parse().expect("valid"));
                    response
                }
                _ => status(StatusCode::NOT_FOUND),
            }
        };
        answer.boxed()
    }
}

fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn describe(peer: &Peer) -> String {
    let identity = peer.identity();
    let who = match (&identity.verified, &identity.error) {
        (Some(cert), _) => format!("{} of {}", cert.common_name, cert.organizations.join(",")),
        (None, Some(error)) => {
            format!("unauthenticated: {}", error.split_once(" failed: ").expect("a reason").1)
        }
        (None, None) => "unauthenticated".to_owned(),
    };
    let tls = peer.tls.as_ref().expect("a connection with TLS");
    format!("{who} over {:?}", tls.version.expect("after the handshake"))
}

/// How to connect.
pub(crate) struct Client<'a> {
    pub(crate) server: &'a TestServer,
    pub(crate) http2: bool,
    pub(crate) tls12: bool,
    pub(crate) certificate: Option<&'a SignedLeaf>,
    pub(crate) server_name: &'static str,
    /// Made once: a session is resumed by the same configuration only.
    pub(crate) config: OnceLock<Arc<ClientConfig>>,
}

impl Client<'_> {
    pub(crate) async fn tls(&self) -> TlsStream<TcpStream> {
        self.try_tls().await.expect("a handshake")
    }

    pub(crate) async fn try_tls(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(self.server.server.address()).await?;
        let name = ServerName::try_from(self.server_name).expect("a name");
        let config = self.config.get_or_init(|| Arc::new(self.make_config()));
        tokio_rustls::TlsConnector::from(config.clone()).connect(name, tcp).await
    }

    fn make_config(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(self.server.ca.pem().as_bytes()).expect("PEM");
        roots.add(ca).expect("a CA");
        let versions =
            if self.tls12 { vec![&rustls::version::TLS12] } else { vec![&rustls::version::TLS13] };
        let builder = ClientConfig::builder_with_provider(
            rustls::crypto::aws_lc_rs::default_provider().into(),
        )
        .with_protocol_versions(&versions)
        .expect("versions");
        // An address is not in the certificates; the test wants to see which one comes, not to trust it.
        let builder = if self.server_name.parse::<std::net::IpAddr>().is_ok() {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(trusting::Trusting))
        } else {
            builder.with_root_certificates(roots)
        };
        let mut config = match self.certificate {
            Some(signed) => {
                let key = PrivateKeyDer::from_pem_slice(signed.key.as_bytes()).expect("PEM");
                builder.with_client_auth_cert(vec![signed.der.clone()], key).expect("a pair")
            }
            None => builder.with_no_client_auth(),
        };
        let protocol: &[u8] = if self.http2 { b"h2" } else { b"http/1.1" };
        config.alpn_protocols = vec![protocol.to_vec()];
        config
    }

    pub(crate) async fn connect(&self) -> Connection {
        let stream = self.tls().await;
        let session = stream.get_ref().1;
        let leaf = session.peer_certificates().expect("a server certificate")[0].to_vec();
        let (_, leaf) = X509Certificate::from_der(&leaf).expect("valid");
        let name = leaf.subject().iter_common_name().next().expect("a common name");
        let server_common_name = name.as_str().expect("text").to_owned();
        let resumed = session.handshake_kind() == Some(HandshakeKind::Resumed);
        let io = TokioIo::new(stream);
        let (sender, driver) = if self.http2 {
            let (sender, connection) =
                http2::handshake(TokioExecutor::new(), io).await.expect("HTTP/2");
            (Sender::Http2(sender), tokio::spawn(async move { connection.await.is_ok() }))
        } else {
            let (sender, connection) = http1::handshake(io).await.expect("HTTP/1.1");
            (Sender::Http1(sender), tokio::spawn(async move { connection.await.is_ok() }))
        };
        Connection { server_common_name, resumed, sender, driver: Some(driver) }
    }
}

pub(crate) struct Connection {
    pub(crate) server_common_name: String,
    pub(crate) resumed: bool,
    sender: Sender,
    driver: Option<JoinHandle<bool>>,
}

enum Sender {
    Http1(http1::SendRequest<Empty<Bytes>>),
    Http2(http2::SendRequest<Empty<Bytes>>),
}

impl Connection {
    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.send(Method::GET, path).await.expect("an answer")
    }

    pub(crate) async fn send(&mut self, method: Method, path: &str) -> hyper::Result<Answer> {
        let uri = format!("https://localhost{path}");
        let uri = if matches!(self.sender, Sender::Http1(_)) { path } else { &uri };
        let request = Request::builder().method(method).uri(uri).header("host", "localhost");
        let request = request.body(Empty::new()).expect("a valid request");
        let response = match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Sender::Http2(sender) => sender.send_request(request).await?,
        };
        let (status, version) = (response.status(), response.version());
        let body = response.into_body().collect().await?.to_bytes();
        Ok(Answer { status, version, body })
    }

    /// Another handle of the same HTTP/2 connection.
    pub(crate) fn share(&self) -> Self {
        let Sender::Http2(sender) = &self.sender else {
            panic!("HTTP/1.1 has one request at a time")
        };
        let server_common_name = self.server_common_name.clone();
        Self {
            server_common_name,
            resumed: self.resumed,
            sender: Sender::Http2(sender.clone()),
            driver: None,
        }
    }

    /// Waits for the server to close the connection, in order.
    pub(crate) async fn closed(self) -> bool {
        let driver = self.driver.expect("the first handle");
        let _sender = self.sender;
        let ended = tokio::time::timeout(Duration::from_secs(10), driver).await;
        ended.is_ok_and(|ended| ended.expect("no panic"))
    }
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) version: Version,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).expect("text")
    }
}

/// HTTP/2 by hand, for what a well-behaved client does not do.
pub(crate) struct Http2Frames {
    stream: TlsStream<TcpStream>,
    seen: VecDeque<Frame>,
}

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Http2Frames {
    pub(crate) async fn connect(server: &TestServer) -> Self {
        let mut stream = Client { http2: true, ..server.client() }.tls().await;
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("written");
        let mut frames = Self { stream, seen: VecDeque::new() };
        frames.write(SETTINGS, 0, 0, &[]).await;
        frames
    }

    pub(crate) async fn open(&mut self, stream: u32, path: &str) {
        // Method GET and scheme https from the static table, path and authority as literals.
        let mut block = vec![0x82, 0x87, 0x44, path.len() as u8];
        block.extend_from_slice(path.as_bytes());
        block.extend_from_slice(b"\x41\x09localhost");
        let end = END_STREAM | END_HEADERS;
        self.write(HEADERS, end, stream, &block).await;
    }

    /// A POST whose body is to come.
    pub(crate) async fn open_with_body(&mut self, stream: u32, path: &str) {
        let mut block = vec![0x83, 0x87, 0x44, path.len() as u8];
        block.extend_from_slice(path.as_bytes());
        block.extend_from_slice(b"\x41\x09localhost");
        self.write(HEADERS, END_HEADERS, stream, &block).await;
    }

    pub(crate) async fn data(&mut self, stream: u32, bytes: &[u8]) {
        self.write(DATA, 0, stream, bytes).await;
    }

    /// Reads until the server closes its side.
    pub(crate) async fn until_closed(&mut self) -> std::io::Result<()> {
        self.stream.read_to_end(&mut Vec::new()).await.map(drop)
    }

    /// Lets the server send as much as it can.
    pub(crate) async fn open_windows(&mut self) {
        let window = 0x7fff_ffff_u32.to_be_bytes();
        let setting = [&4_u16.to_be_bytes()[..], &window].concat();
        self.write(SETTINGS, 0, 0, &setting).await;
        self.write(WINDOW_UPDATE, 0, 0, &0x7000_0000_u32.to_be_bytes()).await;
    }

    /// Lets the server send no data on any stream.
    pub(crate) async fn close_windows(&mut self) {
        self.write(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]).await;
    }

    pub(crate) async fn reset(&mut self, stream: u32) {
        self.write(RST_STREAM, 0, stream, &8_u32.to_be_bytes()).await;
    }

    /// Waits until the server has seen everything sent so far.
    pub(crate) async fn ping(&mut self) {
        self.write(PING, 0, 0, &[7; 8]).await;
        self.until(|frame| frame.kind == PING && frame.flags == 1).await;
    }

    pub(crate) async fn settings(&mut self) -> Vec<(u16, u32)> {
        let frame = self.until(|frame| frame.kind == SETTINGS && frame.flags == 0).await;
        let setting = |bytes: &[u8]| {
            let id = u16::from_be_bytes([bytes[0], bytes[1]]);
            (id, u32::from_be_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]))
        };
        frame.payload.chunks(6).map(setting).collect()
    }

    /// The stream and the code of the next reset.
    pub(crate) async fn until_reset(&mut self) -> (u32, u32) {
        let frame = self.until(|frame| frame.kind == RST_STREAM).await;
        (frame.stream, code(&frame.payload))
    }

    pub(crate) async fn until_headers(&mut self) -> u32 {
        self.until(|frame| frame.kind == HEADERS).await.stream
    }

    /// The code of the next GOAWAY.
    pub(crate) async fn until_goaway(&mut self) -> u32 {
        code(&self.until(|frame| frame.kind == GOAWAY).await.payload[4..])
    }

    /// Keeps what comes in between for the next question.
    async fn until(&mut self, wanted: impl Fn(&Frame) -> bool) -> Frame {
        if let Some(index) = self.seen.iter().position(&wanted) {
            return self.seen.remove(index).expect("just found");
        }
        loop {
            let frame = tokio::time::timeout(Duration::from_secs(10), self.read()).await;
            let frame = frame.expect("a frame within ten seconds");
            if wanted(&frame) {
                return frame;
            }
            self.seen.push_back(frame);
        }
    }

    async fn read(&mut self) -> Frame {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.expect("a frame");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).await.expect("a frame");
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Frame { kind: head[3], flags: head[4], stream, payload }
    }

    async fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.stream.write_all(&frame).await.expect("written");
        self.stream.flush().await.expect("flushed");
    }
}

fn code(payload: &[u8]) -> u32 {
    u32::from_be_bytes([payload[0], payload[1], payload[2], payload[3]])
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

mod trusting {
    //! Takes any server certificate.

    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::{DigitallySignedStruct, Error, SignatureScheme};
    use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

    #[derive(Debug)]
    pub(super) struct Trusting;

    impl ServerCertVerifier for Trusting {
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
            let provider = rustls::crypto::aws_lc_rs::default_provider();
            provider.signature_verification_algorithms.supported_schemes()
        }
    }
}
