//! A konnectivity server (apiserver-network-proxy) over gRPC on a unix socket: one stream of packets
//! for each connection, as its Go client does it.

use std::{path::Path, time::Duration};

use bytes::Bytes;
use client::Stream;
use http::uri::PathAndQuery;
use prost::Message;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    sync::mpsc,
    time::timeout,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Streaming, client::Grpc, transport::Channel};
use tonic_prost::ProstCodec;

use crate::selector::join_host_port;

/// Compat: as long as the Go client waits.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// For the answer to a close request.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// What one packet carries, and what a connection keeps for its reader.
const DATA_BYTES_MAX: usize = 32 * 1024;
const PIPE_BYTES: usize = 64 * 1024;
/// Packets on their way into the stream.
const SENDING_MAX: usize = 4;
/// A packet from the proxy; a larger one ends the stream.
const PACKET_BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("{0}")]
    Connect(#[from] tonic::transport::Error),
    #[error("{0}")]
    Stream(#[from] Box<tonic::Status>),
    /// In the words of the proxy.
    #[error("{0}")]
    Refused(String),
    #[error("dial closed")]
    Closed,
    #[error("tunnel closed")]
    TunnelClosed,
    #[error("dial timeout, backstop")]
    Timeout,
}

/// Opens the gRPC connection.
pub(crate) async fn connect(socket: &Path) -> Result<Channel, DialError> {
    Ok(grpc::connect(grpc::Socket::file(socket), CONNECT_TIMEOUT).await?)
}

/// Asks the konnectivity server for a connection to the target.
pub(crate) async fn dial(
    channel: Channel,
    host: &str,
    port: u16,
) -> Result<Box<dyn Stream>, DialError> {
    let (sender, packets) = mpsc::channel(SENDING_MAX);
    let random = i64::from_ne_bytes(getrandom::u64().unwrap_or_default().to_ne_bytes()) & i64::MAX;
    let request =
        DialRequest { protocol: "tcp".to_owned(), address: join_host_port(host, port), random };
    let request = Packet::new(PacketType::DialReq, Payload::DialRequest(request));
    // There is space in the channel: nothing was sent before.
    let _ = sender.send(request).await;
    let dialing = async {
        let mut received = open(channel, packets).await?;
        let connection = accepted(&mut received, random).await?;
        Ok((received, connection))
    };
    let (received, connection) =
        timeout(DIAL_TIMEOUT, dialing).await.unwrap_or(Err(DialError::Timeout))?;
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    tokio::spawn(carry(far, connection, sender, received));
    Ok(Box::new(near))
}

async fn open(
    channel: Channel,
    packets: mpsc::Receiver<Packet>,
) -> Result<Streaming<Packet>, DialError> {
    let mut grpc = Grpc::new(channel).max_decoding_message_size(PACKET_BYTES_MAX);
    grpc.ready().await?;
    let path = PathAndQuery::from_static("/ProxyService/Proxy");
    let codec = ProstCodec::<Packet, Packet>::default();
    let request = Request::new(ReceiverStream::new(packets));
    let response = grpc.streaming(request, path, codec).await.map_err(Box::new)?;
    Ok(response.into_inner())
}

/// The id of the connection, once the proxy has it.
async fn accepted(received: &mut Streaming<Packet>, random: i64) -> Result<i64, DialError> {
    while let Some(packet) = received.message().await.map_err(Box::new)? {
        match packet.payload {
            Some(Payload::DialResponse(response)) if response.random == random => {
                return match response.error.as_str() {
                    "" => Ok(response.connect_id),
                    _ => Err(DialError::Refused(response.error)),
                };
            }
            Some(Payload::CloseDial(closed)) if closed.random == random => {
                return Err(DialError::Closed);
            }
            _ => {}
        }
    }
    Err(DialError::TunnelClosed)
}

/// Moves bytes between the connection's user and the stream of packets, until one of them ends. Neither
/// direction is read faster than the other side takes it: gRPC has flow control, and the pipe is short.
async fn carry(
    pipe: DuplexStream,
    connection: i64,
    sender: mpsc::Sender<Packet>,
    mut received: Streaming<Packet>,
) {
    let (mut from_user, mut to_user) = tokio::io::split(pipe);
    let outgoing = async {
        let mut buffer = vec![0; DATA_BYTES_MAX];
        loop {
            let count = from_user.read(&mut buffer).await.unwrap_or(0);
            let data = match count {
                0 => break,
                count => Bytes::copy_from_slice(&buffer[..count]),
            };
            let data = Data { connect_id: connection, error: String::new(), data };
            if sender.send(Packet::new(PacketType::Data, Payload::Data(data))).await.is_err() {
                return;
            }
        }
        let close = CloseRequest { connect_id: connection };
        let _ = sender.send(Packet::new(PacketType::CloseReq, Payload::CloseRequest(close))).await;
        tokio::time::sleep(CLOSE_TIMEOUT).await;
    };
    let incoming = async {
        while let Ok(Some(packet)) = received.message().await {
            match packet.payload {
                Some(Payload::Data(data)) if data.connect_id == connection => {
                    // An error: the user is gone, and what comes until the close is answered is of no use.
                    let _ = to_user.write_all(&data.data).await;
                }
                Some(Payload::CloseResponse(closed)) if closed.connect_id == connection => break,
                _ => {}
            }
        }
        let _ = to_user.shutdown().await;
    };
    tokio::select! { () = outgoing => {}, () = incoming => {} }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum PacketType {
    DialReq = 0,
    DialRsp = 1,
    CloseReq = 2,
    CloseRsp = 3,
    Data = 4,
    DialCls = 5,
    Drain = 6,
}

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(enumeration = "PacketType", tag = "1")]
    r#type: i32,
    #[prost(oneof = "Payload", tags = "2, 3, 4, 5, 6, 7")]
    payload: Option<Payload>,
}

impl Packet {
    fn new(packet_type: PacketType, payload: Payload) -> Self {
        Self { r#type: packet_type as i32, payload: Some(payload) }
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
    #[prost(message, tag = "7")]
    CloseDial(CloseDial),
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

#[derive(Clone, Copy, PartialEq, Message)]
struct CloseDial {
    #[prost(int64, tag = "1")]
    random: i64,
}

#[allow(clippy::struct_field_names)] // konnectivity's names.
#[derive(Clone, PartialEq, Message)]
struct Data {
    #[prost(int64, tag = "1")]
    connect_id: i64,
    #[prost(string, tag = "2")]
    error: String,
    #[prost(bytes = "bytes", tag = "3")]
    data: Bytes,
}

#[cfg(test)]
mod tests;
