//! A client that sends a few bytes through exec or port-forward and waits until they come back: over a WebSocket,
//! as kubectl does it, or over SPDY, as older clients and API servers do.

use anyhow::{Context as _, Result, bail, ensure};
use spdy::{Frame, Session, StreamId};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::client::Target;
use crate::kubelet::{EXEC_PROTOCOL, PORT_FORWARD_PROTOCOL};

/// A way to a process or a port of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ExecWebSocket,
    ExecSpdy,
    PortForwardWebSocket,
    PortForwardSpdy,
}

pub(crate) enum Echo<S> {
    /// Each message begins with its channel.
    WebSocket(S),
    Spdy {
        session: Session<S>,
        sent: StreamId,
        received: StreamId,
    },
    /// SPDY in binary messages.
    Tunnel {
        session: Session<Messages<S>>,
        stream: StreamId,
    },
}

pub(crate) type Connection = tokio_rustls::client::TlsStream<tokio::net::TcpStream>;

impl Echo<Connection> {
    /// `path` with its query.
    pub(crate) async fn open(target: &Target, path: &str, way: Way) -> Result<Self> {
        let (upgrade, protocol) = match way {
            Way::ExecWebSocket => ("websocket", "v5.channel.k8s.io"),
            Way::PortForwardWebSocket => ("websocket", "SPDY/3.1+portforward.k8s.io"),
            Way::ExecSpdy => (spdy::UPGRADE, EXEC_PROTOCOL),
            Way::PortForwardSpdy => (spdy::UPGRADE, PORT_FORWARD_PROTOCOL),
        };
        let mut stream = target.open_http1().await?;
        let (method, header) = if upgrade == "websocket" {
            ("GET", "Sec-WebSocket-Protocol")
        } else {
            ("POST", "X-Stream-Protocol-Version")
        };
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: {upgrade}\r\n\
             {header}: {protocol}\r\nContent-Length: 0\r\n",
            target.authority()
        );
        if upgrade == "websocket" {
            head.push_str(
                "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
            );
        }
        if let Some(authorization) = target.authorization() {
            head.push_str(&format!("Authorization: {authorization}\r\n"));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).await?;
        stream.flush().await?;
        upgraded(&mut stream).await?;
        match way {
            Way::ExecWebSocket => Ok(Self::WebSocket(stream)),
            Way::ExecSpdy => {
                let mut session = Session::new(stream);
                // Kubelets wait for all streams before they begin.
                session.open(&[("streamtype", "error")]).await?;
                let sent = session.open(&[("streamtype", "stdin")]).await?;
                let received = session.open(&[("streamtype", "stdout")]).await?;
                Ok(Self::Spdy { session, sent, received })
            }
            Way::PortForwardSpdy => {
                let mut session = Session::new(stream);
                let stream = port_streams(&mut session).await?;
                Ok(Self::Spdy { session, sent: stream, received: stream })
            }
            Way::PortForwardWebSocket => {
                let mut session = Session::new(Messages::new(stream));
                let stream = port_streams(&mut session).await?;
                Ok(Self::Tunnel { session, stream })
            }
        }
    }

    /// Sends these bytes, and waits until they are back.
    pub(crate) async fn echo(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::WebSocket(stream) => {
                let message: Vec<u8> = [STDIN].iter().chain(bytes).copied().collect();
                write_message(stream, &message).await?;
                let mut left = bytes.len();
                while left > 0 {
                    let message = read_message(stream).await?;
                    // Empty messages open the channels.
                    let Some((channel, data)) = message.split_first() else { continue };
                    ensure!(
                        *channel != ERROR || data.is_empty(),
                        "{}",
                        String::from_utf8_lossy(data)
                    );
                    left = left.checked_sub(data.len()).context("more came back than was sent")?;
                }
                Ok(())
            }
            Self::Spdy { session, sent, received } => {
                echo_in(session, *sent, *received, bytes).await
            }
            Self::Tunnel { session, stream } => echo_in(session, *stream, *stream, bytes).await,
        }
    }
}

const STDIN: u8 = 0;
const ERROR: u8 = 3;

/// The streams of a forwarded port, of which the data stream is returned.
async fn port_streams<S: AsyncRead + AsyncWrite>(session: &mut Session<S>) -> Result<StreamId> {
    let of = |kind| [("streamtype", kind), ("port", "80"), ("requestID", "0")];
    session.open(&of("error")).await?;
    Ok(session.open(&of("data")).await?)
}

async fn echo_in<S: AsyncRead + AsyncWrite>(
    session: &mut Session<S>,
    sent: StreamId,
    received: StreamId,
    bytes: &[u8],
) -> Result<()> {
    session.writer.data(sent, bytes).await?;
    let mut left = bytes.len();
    while left > 0 {
        match session.reader.next().await? {
            Frame::Data { stream, bytes, .. } if stream == received => {
                left = left.checked_sub(bytes.len()).context("more came back than was sent")?;
            }
            Frame::Data { bytes, .. } if !bytes.is_empty() => {
                bail!("{}", String::from_utf8_lossy(&bytes));
            }
            Frame::RstStream { .. } | Frame::GoAway => bail!("the session has ended"),
            _ => {}
        }
    }
    Ok(())
}

/// Reads the head of the answer, which must agree to the upgrade.
async fn upgraded(stream: &mut Connection) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < HEAD_BYTES_MAX, "an answer without an end");
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head);
    ensure!(head.starts_with("HTTP/1.1 101 "), "no upgrade: {head}");
    Ok(())
}

const HEAD_BYTES_MAX: usize = 16 << 10;

/// A binary message, masked with zeros.
async fn write_message(stream: &mut (impl AsyncWrite + Unpin), payload: &[u8]) -> Result<()> {
    let mut frame = frame_head(payload.len());
    frame.extend_from_slice(payload);
    stream.write_all(&frame).await?;
    Ok(stream.flush().await?)
}

fn frame_head(length: usize) -> Vec<u8> {
    let mut head = vec![0x80 | BINARY];
    match length {
        0..126 => head.push(0x80 | u8::try_from(length).unwrap_or_default()),
        126..0x1_0000 => {
            head.push(0x80 | 0x7e);
            head.extend_from_slice(&u16::try_from(length).unwrap_or_default().to_be_bytes());
        }
        _ => {
            head.push(0x80 | 0x7f);
            head.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    head.extend_from_slice(&[0; 4]);
    head
}

const BINARY: u8 = 2;
const CLOSE: u8 = 8;

/// The payload of the next message with data; pings are not answered, for a run is short.
async fn read_message(stream: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>> {
    loop {
        let opcode = stream.read_u8().await? & 0x0f;
        let length = match stream.read_u8().await? {
            126 => u64::from(stream.read_u16().await?),
            127 => stream.read_u64().await?,
            short => u64::from(short),
        };
        ensure!(length < MESSAGE_BYTES_MAX, "a message of {length} bytes");
        let mut payload = vec![0; usize::try_from(length)?];
        stream.read_exact(&mut payload).await?;
        match opcode {
            CLOSE => bail!("closed: {}", String::from_utf8_lossy(&payload)),
            0..=BINARY => return Ok(payload),
            _ => {}
        }
    }
}

const MESSAGE_BYTES_MAX: u64 = 1 << 20;

pub(crate) use messages::Messages;

/// The bytes of binary messages as one stream.
mod messages {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};

    use bytes::{Buf as _, BytesMut};
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    pub(crate) struct Messages<S> {
        inner: S,
        received: BytesMut,
        /// Of the message that is being read.
        left: usize,
        /// What could not be written yet.
        unsent: BytesMut,
    }

    impl<S> Messages<S> {
        pub(crate) fn new(inner: S) -> Self {
            let (received, unsent) = (BytesMut::new(), BytesMut::new());
            Self { inner, received, left: 0, unsent }
        }

        /// The length of the next message, if its head is here.
        fn next_length(&mut self) -> Option<usize> {
            let (short, rest) = (*self.received.get(1)?, self.received.get(2..)?);
            let (length, head) = match short & 0x7f {
                126 => (usize::from(u16::from_be_bytes(*rest.first_chunk()?)), 4),
                127 => (usize::try_from(u64::from_be_bytes(*rest.first_chunk()?)).ok()?, 10),
                length => (usize::from(length), 2),
            };
            self.received.advance(head);
            Some(length)
        }
    }

    impl<S: AsyncRead + Unpin> AsyncRead for Messages<S> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            out: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            loop {
                if self.left == 0
                    && let Some(length) = self.next_length()
                {
                    self.left = length;
                    continue;
                }
                if self.left > 0 && !self.received.is_empty() {
                    let bytes = self.left.min(self.received.len()).min(out.remaining());
                    out.put_slice(&self.received.split_to(bytes));
                    self.left -= bytes;
                    return Poll::Ready(Ok(()));
                }
                let mut piece = [0; 4096];
                let mut piece = ReadBuf::new(&mut piece);
                ready!(Pin::new(&mut self.inner).poll_read(cx, &mut piece))?;
                if piece.filled().is_empty() {
                    return Poll::Ready(Ok(()));
                }
                self.received.extend_from_slice(piece.filled());
            }
        }
    }

    impl<S: AsyncWrite + Unpin> AsyncWrite for Messages<S> {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            ready!(self.as_mut().poll_flush(cx))?;
            let head = super::frame_head(bytes.len());
            self.unsent.extend_from_slice(&head);
            self.unsent.extend_from_slice(bytes);
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            let this = &mut *self;
            while !this.unsent.is_empty() {
                let written = ready!(Pin::new(&mut this.inner).poll_write(cx, &this.unsent))?;
                this.unsent.advance(written);
            }
            Pin::new(&mut this.inner).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            ready!(self.as_mut().poll_flush(cx))?;
            Pin::new(&mut self.inner).poll_shutdown(cx)
        }
    }
}
