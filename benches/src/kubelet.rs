//! A kubelet on an address of this machine that echoes: exec and port-forward over SPDY, as kubelets serve them to
//! API servers. It has a thread of its own and does as little as possible.

use std::collections::HashMap;
use std::net::{IpAddr, UdpSocket};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::BytesMut;
use spdy::{Decoder, Encoder, Frame};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::tls_server::TlsServer;

/// Answers until it is dropped.
pub(crate) fn start() -> Result<TlsServer> {
    let serve = |stream| async { drop(serve(stream).await) };
    TlsServer::start(machine_address()?, &[], &["http/1.1"], serve)
}

/// An address of this machine that is not loopback, which API servers refuse. Nothing is sent to find it.
fn machine_address() -> Result<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect("192.0.2.1:9").context("this machine has no route to anywhere")?;
    let ip = socket.local_addr()?.ip();
    ensure!(!ip.is_loopback() && !ip.is_unspecified(), "this machine has loopback only");
    Ok(ip)
}

async fn serve(mut stream: TlsStream<TcpStream>) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < HEAD_BYTES_MAX, "a head without an end");
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    ensure!(head.contains("spdy/3.1"), "no request for SPDY: {head}");
    let protocol = if head.contains("/exec/") { EXEC_PROTOCOL } else { PORT_FORWARD_PROTOCOL };
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
         X-Stream-Protocol-Version: {protocol}\r\n\r\n"
    );
    stream.write_all(answer.as_bytes()).await?;
    let (mut decoder, mut encoder) = (Decoder::default(), Encoder::default());
    let (mut received, mut sent) = (BytesMut::new(), BytesMut::new());
    let mut streams = Streams::default();
    loop {
        while let Some(frame) = decoder.next(&mut received)? {
            streams.answer(frame, &mut encoder, &mut sent)?;
        }
        stream.write_all_buf(&mut sent).await?;
        stream.flush().await?;
        if stream.read_buf(&mut received).await? == 0 {
            return Ok(());
        }
    }
}

const HEAD_BYTES_MAX: usize = 16 << 10;
pub(crate) const EXEC_PROTOCOL: &str = "v4.channel.k8s.io";
pub(crate) const PORT_FORWARD_PROTOCOL: &str = "portforward.k8s.io";

/// Which stream an echo comes from.
#[derive(Default)]
struct Streams {
    by_type: HashMap<String, u32>,
}

impl Streams {
    fn answer(&mut self, frame: Frame, encoder: &mut Encoder, out: &mut BytesMut) -> Result<()> {
        match frame {
            Frame::SynStream { stream, headers, .. } => {
                let of = headers.iter().find(|(name, _)| name == "streamtype");
                let Some((_, kind)) = of else { bail!("a stream without a type") };
                self.by_type.insert(kind.clone(), stream);
                encoder.syn_reply(stream, &[], out);
            }
            // What stdin gets comes from stdout; a forwarded port has one stream for both.
            Frame::Data { stream, bytes, .. } if !bytes.is_empty() => {
                let into = self.by_type.get("stdout").copied().unwrap_or(stream);
                Encoder::data_head(into, bytes.len(), false, out);
                out.extend_from_slice(&bytes);
            }
            Frame::Ping { id } => Encoder::ping(id, out),
            _ => {}
        }
        Ok(())
    }
}
