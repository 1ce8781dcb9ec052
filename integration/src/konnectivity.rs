//! A konnectivity server (apiserver-network-proxy): gRPC on a unix socket, one stream of packets for each connection.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::StreamExt as _;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixListener};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::http::runtime;
use crate::routes::Routes;

/// It connects until it is dropped.
pub struct KonnectivityServer {
    socket: PathBuf,
    routes: Routes,
    server: AbortHandle,
}

impl KonnectivityServer {
    pub fn start(socket: &Path) -> Self {
        let routes = Routes::default();
        let known = routes.clone();
        let _runtime = runtime().enter();
        let listener = UnixListener::bind(socket).expect("a free socket");
        let server = runtime().spawn(async move {
            // Connections end with the server.
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let known = known.clone();
                connections.spawn(async move {
                    let service = service_fn(|request| {
                        std::future::ready(Ok::<_, Infallible>(proxy(request, known.clone())))
                    });
                    let server = http2::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(client), service).await;
                });
            }
        });
        Self { socket: socket.to_owned(), routes, server: server.abort_handle() }
    }

    /// Connections to this address and port go to a port on loopback; all others are refused.
    pub fn route(&self, address: &str, port: u16) {
        self.routes.add(address, port);
    }

    /// The addresses and ports that it was asked for.
    pub fn targets(&self) -> Vec<String> {
        self.routes.targets()
    }

    /// An entry of an `EgressSelectorConfiguration` that leads here.
    pub fn selection(&self, name: &str) -> Value {
        json!({"name": name, "connection": {
            "proxyProtocol": "GRPC",
            "transport": {"uds": {"udsName": self.socket}},
        }})
    }
}

impl Drop for KonnectivityServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

fn proxy(request: Request<Incoming>, routes: Routes) -> Response<Body> {
    let response = Response::builder().header("content-type", "application/grpc");
    if request.uri().path() != "/ProxyService/Proxy" {
        let empty = http_body_util::Empty::new().boxed_unsync();
        return response.header("grpc-status", "12").body(empty).expect("a plain response");
    }
    let (sender, receiver) = mpsc::channel(4);
    tokio::spawn(async move {
        // None: the client is gone.
        let _ = tunnel(Packets::new(request.into_body()), sender, &routes).await;
    });
    let packets = futures_util::stream::unfold(receiver, async |mut receiver| {
        let packet: Packet = receiver.recv().await?;
        let message = packet.encode_to_vec();
        let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
        let framed = [&[0][..], &length, &message].concat();
        Some((Ok(Frame::data(Bytes::from(framed))), receiver))
    });
    let end = async {
        let status = HeaderValue::from_static("0");
        Ok(Frame::trailers(HeaderMap::from_iter([(
            http::HeaderName::from_static("grpc-status"),
            status,
        )])))
    };
    let body = StreamBody::new(packets.chain(futures_util::stream::once(end)));
    response.body(body.boxed_unsync()).expect("a plain response")
}

/// One connection: dialed, carried, closed.
async fn tunnel(mut packets: Packets, sender: mpsc::Sender<Packet>, routes: &Routes) -> Option<()> {
    static NEXT: AtomicI64 = AtomicI64::new(1);
    let Payload::DialRequest(dial) = packets.next().await? else { return None };
    let connect_id = NEXT.fetch_add(1, Ordering::SeqCst);
    let backend = match routes.find(&dial.address) {
        Some(port) if dial.protocol == "tcp" => TcpStream::connect(("127.0.0.1", port)).await.ok(),
        _ => None,
    };
    let random = dial.random;
    let Some(backend) = backend else {
        let error = format!("no route to {}", dial.address);
        let refused = DialResponse { error, connect_id: 0, random };
        return sender.send(Packet::new(1, Payload::DialResponse(refused))).await.ok();
    };
    let accepted = DialResponse { error: String::new(), connect_id, random };
    sender.send(Packet::new(1, Payload::DialResponse(accepted))).await.ok()?;
    let (mut read, mut write) = backend.into_split();
    let from_backend = async {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(count @ 1..) = read.read(&mut buffer).await {
            let bytes = Bytes::copy_from_slice(&buffer[..count]);
            let data = Data { connect_id, error: String::new(), bytes };
            sender.send(Packet::new(4, Payload::Data(data))).await.ok()?;
        }
        Some(())
    };
    let from_client = async {
        while let Some(packet) = packets.next().await {
            match packet {
                Payload::Data(data) if data.connect_id == connect_id => {
                    write.write_all(&data.bytes).await.ok()?;
                }
                Payload::CloseRequest(_) => break,
                _ => {}
            }
        }
        Some(())
    };
    tokio::select! { _ = from_backend => {}, _ = from_client => {} }
    let closed = CloseResponse { error: String::new(), connect_id };
    sender.send(Packet::new(3, Payload::CloseResponse(closed))).await.ok()
}

/// The messages of a client.
struct Packets {
    body: Incoming,
    read: BytesMut,
}

impl Packets {
    fn new(body: Incoming) -> Self {
        Self { body, read: BytesMut::new() }
    }

    async fn next(&mut self) -> Option<Payload> {
        loop {
            if self.read.len() >= 5 {
                let length = u32::from_be_bytes(self.read[1..5].try_into().ok()?) as usize;
                if self.read.len() >= 5 + length {
                    self.read.advance(5);
                    let packet = Packet::decode(self.read.split_to(length)).ok()?;
                    return packet.payload;
                }
            }
            let frame = self.body.frame().await?.ok()?;
            if let Some(data) = frame.data_ref() {
                self.read.extend_from_slice(data);
            }
        }
    }
}

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(int32, tag = "1")]
    packet_type: i32,
    #[prost(oneof = "Payload", tags = "2, 3, 4, 5, 6")]
    payload: Option<Payload>,
}

impl Packet {
    fn new(packet_type: i32, payload: Payload) -> Self {
        Self { packet_type, payload: Some(payload) }
    }
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Payload {
    #[prost(message, tag = "2")]
    DialRequest(DialRequest),
    #[prost(message, tag = "3")]
    DialResponse(DialResponse),
    #[prost(message, tag = "4")]
    Data(Data),
    #[prost(message, tag = "5")]
    CloseRequest(CloseRequest),
    #[prost(message, tag = "6")]
    CloseResponse(CloseResponse),
}

#[derive(Clone, PartialEq, Message)]
struct DialRequest {
    #[prost(string, tag = "1")]
    protocol: String,
    #[prost(string, tag = "2")]
    address: String,
    #[prost(int64, tag = "3")]
    random: i64,
}

#[derive(Clone, PartialEq, Message)]
struct DialResponse {
    #[prost(string, tag = "1")]
    error: String,
    #[prost(int64, tag = "2")]
    connect_id: i64,
    #[prost(int64, tag = "3")]
    random: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Data {
    #[prost(int64, tag = "1")]
    connect_id: i64,
    #[prost(string, tag = "2")]
    error: String,
    #[prost(bytes = "bytes", tag = "3")]
    bytes: Bytes,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct CloseRequest {
    #[prost(int64, tag = "1")]
    connect_id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct CloseResponse {
    #[prost(string, tag = "1")]
    error: String,
    #[prost(int64, tag = "2")]
    connect_id: i64,
}
