//! The two halves of a WebSocket whose messages are read and written here.

use std::{io, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serve::websocket::{Event, MessageDecoder, NORMAL_CLOSE, Opcode, PROTOCOL_ERROR, encode_frame};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf},
    time::timeout,
};

/// Compat: a session is ended after this long without a byte in either direction.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_hours(4);
/// A client that reads nothing for this long is given up.
const WRITE_TIMEOUT: Duration = Duration::from_mins(10);
/// How often a client is probed whose input the kubelet does not take.
const PROBE_PERIOD: Duration = Duration::from_secs(30);
/// At a time from the connection.
const READ_BYTES: usize = 32 * 1024;

pub(crate) type ClientReader = MessageReader<ReadHalf<TokioIo<Upgraded>>>;
pub(crate) type ClientWriter = MessageWriter<WriteHalf<TokioIo<Upgraded>>>;

/// Both halves, for two tasks: a client that does not read can still be read from.
pub(crate) fn split<S: AsyncRead + AsyncWrite>(
    connection: S,
) -> (MessageReader<ReadHalf<S>>, MessageWriter<WriteHalf<S>>) {
    let (reader, writer) = tokio::io::split(connection);
    let pong = Arc::new(Mutex::new(None));
    let reader = MessageReader {
        inner: reader,
        decoder: MessageDecoder::default(),
        buffer: BytesMut::new(),
        pong: pong.clone(),
    };
    let writer = MessageWriter { inner: Arc::new(tokio::sync::Mutex::new(writer)), pong };
    (reader, writer)
}

pub(crate) struct MessageReader<R> {
    inner: R,
    decoder: MessageDecoder,
    buffer: BytesMut,
    pong: Arc<Mutex<Option<Bytes>>>,
}

/// A piece of a message.
pub(crate) struct Piece {
    pub(crate) binary: bool,
    pub(crate) begins: bool,
    pub(crate) bytes: Bytes,
}

impl<R: AsyncRead + Unpin> MessageReader<R> {
    /// The next piece of a message; None when the client has closed. Pings are answered by `writer`.
    pub(crate) async fn next<W: AsyncWrite + Unpin>(
        &mut self,
        writer: &MessageWriter<W>,
    ) -> io::Result<Option<Piece>> {
        loop {
            match self.decoder.next(&mut self.buffer) {
                Ok(Some(Event::Data { binary, begins, bytes })) => {
                    return Ok(Some(Piece { binary, begins, bytes }));
                }
                Ok(Some(Event::Ping(payload))) => {
                    *self.pong.lock() = Some(payload);
                    writer.answer_ping().await?;
                }
                Ok(Some(Event::Pong)) => {}
                Ok(Some(Event::Close)) => return Ok(None),
                Ok(None) => {
                    self.buffer.reserve(READ_BYTES);
                    let reading = self.inner.read_buf(&mut self.buffer);
                    match timeout(IDLE_TIMEOUT, reading).await {
                        Ok(Ok(0)) => return Ok(None),
                        Ok(read) => drop(read?),
                        Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "idle")),
                    }
                }
                Err(violation) => {
                    let _ = writer.close(&PROTOCOL_ERROR).await;
                    return Err(io::Error::new(io::ErrorKind::InvalidData, violation));
                }
            }
        }
    }
}

/// Cheap to clone: clones write to the same connection.
pub(crate) struct MessageWriter<W> {
    inner: Arc<tokio::sync::Mutex<W>>,
    /// The last ping that is not answered.
    pong: Arc<Mutex<Option<Bytes>>>,
}

impl<W> Clone for MessageWriter<W> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), pong: self.pong.clone() }
    }
}

impl<W: AsyncWrite + Unpin> MessageWriter<W> {
    pub(crate) async fn send(&self, payload: &[u8]) -> io::Result<()> {
        self.write(&mut *self.inner.lock().await, &encode_frame(Opcode::Binary, payload)).await
    }

    /// Says goodbye and ends the connection.
    pub(crate) async fn close(&self, code: &[u8; 2]) -> io::Result<()> {
        let mut inner = self.inner.lock().await;
        self.write(&mut inner, &encode_frame(Opcode::Close, code)).await?;
        inner.shutdown().await
    }

    pub(crate) async fn close_normally(&self) -> io::Result<()> {
        self.close(&NORMAL_CLOSE).await
    }

    /// Learns whether the client is still there: a host that has closed the connection answers a ping by a reset,
    /// which the next write meets. For sides that cannot read from the client, because the kubelet does not take it.
    async fn probe(&self) -> io::Result<()> {
        match self.inner.try_lock() {
            Ok(mut inner) => self.write(&mut inner, &encode_frame(Opcode::Ping, &[])).await,
            // What is being written learns it.
            Err(_) => Ok(()),
        }
    }

    /// Waits for the kubelet to take what a client has sent. None: the client is gone meanwhile.
    pub(crate) async fn while_there<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            match timeout(PROBE_PERIOD, &mut work).await {
                Ok(done) => return Some(done),
                Err(_) => self.probe().await.ok()?,
            }
        }
    }

    /// If another message is being written, the ping is answered behind it: what reads from the
    /// client must not wait for the client to read.
    async fn answer_ping(&self) -> io::Result<()> {
        match self.inner.try_lock() {
            Ok(mut inner) => self.write(&mut inner, &[]).await,
            Err(_) => Ok(()),
        }
    }

    async fn write(&self, inner: &mut W, frame: &[u8]) -> io::Result<()> {
        let writing = async {
            inner.write_all(frame).await?;
            loop {
                let Some(payload) = self.pong.lock().take() else { break };
                inner.write_all(&encode_frame(Opcode::Pong, &payload)).await?;
            }
            inner.flush().await
        };
        let stalled = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read"));
        timeout(WRITE_TIMEOUT, writing).await.unwrap_or_else(stalled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that leaves while its input waits is noticed, and one that stays is waited for.
    #[tokio::test(start_paused = true)]
    async fn a_client_is_probed_while_its_input_waits() {
        let (near, mut far) = tokio::io::duplex(1024);
        let (_reader, writer) = split(near);
        let slow = tokio::time::sleep(10 * PROBE_PERIOD);
        assert_eq!(writer.while_there(slow).await, Some(()));
        let mut pings = [0; 2];
        for _ in 0..9 {
            far.read_exact(&mut pings).await.expect("a ping");
            assert_eq!(pings, [0x89, 0]);
        }
        drop(far);
        let began = tokio::time::Instant::now();
        assert_eq!(writer.while_there(std::future::pending::<()>()).await, None);
        assert_eq!(began.elapsed(), PROBE_PERIOD);
    }
}
