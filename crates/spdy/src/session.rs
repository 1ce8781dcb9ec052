//! A connection as its client: opens streams and waits for their replies, writes data, reads frames.
//!
//! The two halves are used by two tasks, so that a peer that does not read what it is sent can still
//! be read from.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};

use super::frame::{Decoder, Encoder, Frame, Reset, SpdyError};

/// A stream that this side has opened: an odd number.
pub type StreamId = u32;

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Frame(#[from] SpdyError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("stream reset")]
    Reset,
    #[error("Timed out waiting for reply")]
    Timeout,
    #[error("connection closed")]
    Closed,
}

/// Compat: as long as client-go waits for the reply to a new stream.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// Between pings, which keep connections through load balancers. Compat: client-go's.
pub const PING_PERIOD: Duration = Duration::from_secs(5);
/// Longest data frame that is written.
const DATA_BYTES_MAX: usize = 64 * 1024;
/// At a time from the connection.
const READ_BYTES: usize = 32 * 1024;
/// Pings that wait for an answer; more are not answered.
const PENDING_PINGS_MAX: usize = 16;

/// Both halves, while streams are opened.
pub struct Session<S> {
    pub reader: SessionReader<tokio::io::ReadHalf<S>>,
    pub writer: SessionWriter<tokio::io::WriteHalf<S>>,
}

impl<S: AsyncRead + AsyncWrite> Session<S> {
    pub fn new(connection: S) -> Self {
        let (reader, writer) = tokio::io::split(connection);
        let pings = Arc::new(Mutex::new(VecDeque::new()));
        Self {
            reader: SessionReader {
                inner: reader,
                decoder: Decoder::default(),
                buffer: BytesMut::new(),
                early: VecDeque::new(),
                pings: pings.clone(),
            },
            writer: SessionWriter {
                inner: writer,
                encoder: Encoder::default(),
                next_stream: 1,
                next_ping: 1,
                pings,
            },
        }
    }

    /// Opens a stream and waits until the other side has accepted it.
    pub async fn open(&mut self, headers: &[(&str, &str)]) -> Result<StreamId, SessionError> {
        let stream = self.writer.next_stream;
        self.writer.next_stream += 2;
        let mut frame = BytesMut::new();
        self.writer.encoder.syn_stream(stream, headers, &mut frame);
        self.writer.write(&frame).await?;
        let reply = self.reader.reply(stream);
        timeout(REPLY_TIMEOUT, reply).await.unwrap_or(Err(SessionError::Timeout))?;
        Ok(stream)
    }
}

pub struct SessionReader<R> {
    inner: R,
    decoder: Decoder,
    buffer: BytesMut,
    /// What other streams received while a reply was waited for.
    early: VecDeque<Frame>,
    /// What the writer has to answer.
    pings: Arc<Mutex<VecDeque<u32>>>,
}

/// Pieces of data that may come for earlier streams while the last ones are being opened; each is at
/// most as long as one read.
const EARLY_FRAMES_MAX: usize = 64;

impl<R: AsyncRead + Unpin> SessionReader<R> {
    async fn reply(&mut self, to: StreamId) -> Result<(), SessionError> {
        loop {
            match self.receive().await? {
                Frame::SynReply { stream, .. } if stream == to => return Ok(()),
                Frame::RstStream { stream, .. } if stream == to => return Err(SessionError::Reset),
                Frame::GoAway => return Err(SessionError::Closed),
                frame if self.early.len() < EARLY_FRAMES_MAX => self.early.push_back(frame),
                _ => return Err(SessionError::Closed),
            }
        }
    }

    /// The next frame; [`SessionError::Closed`] at the end of the connection.
    pub async fn next(&mut self) -> Result<Frame, SessionError> {
        match self.early.pop_front() {
            Some(frame) => Ok(frame),
            None => self.receive().await,
        }
    }

    async fn receive(&mut self) -> Result<Frame, SessionError> {
        loop {
            match self.decoder.next(&mut self.buffer)? {
                // Even ones are the server's pings, odd ones the answers to ours.
                Some(Frame::Ping { id }) if id % 2 == 0 => {
                    let mut pings = self.pings.lock();
                    if pings.len() < PENDING_PINGS_MAX {
                        pings.push_back(id);
                    }
                }
                Some(Frame::Ping { .. }) => {}
                Some(frame) => return Ok(frame),
                None => {
                    self.buffer.reserve(READ_BYTES);
                    if self.inner.read_buf(&mut self.buffer).await? == 0 {
                        return Err(SessionError::Closed);
                    }
                }
            }
        }
    }
}

pub struct SessionWriter<W> {
    inner: W,
    encoder: Encoder,
    next_stream: StreamId,
    next_ping: u32,
    pings: Arc<Mutex<VecDeque<u32>>>,
}

impl<W: AsyncWrite + Unpin> SessionWriter<W> {
    pub async fn data(&mut self, stream: StreamId, bytes: &[u8]) -> Result<(), SessionError> {
        for bytes in bytes.chunks(DATA_BYTES_MAX) {
            let mut frame = BytesMut::with_capacity(8 + bytes.len());
            Encoder::data_head(stream, bytes.len(), false, &mut frame);
            frame.extend_from_slice(bytes);
            self.write(&frame).await?;
        }
        Ok(())
    }

    /// Nothing more will be written to this stream.
    pub async fn finish(&mut self, stream: StreamId) -> Result<(), SessionError> {
        let mut frame = BytesMut::new();
        Encoder::data_head(stream, 0, true, &mut frame);
        self.write(&frame).await
    }

    pub async fn ping(&mut self) -> Result<(), SessionError> {
        let mut frame = BytesMut::new();
        Encoder::ping(self.next_ping, &mut frame);
        self.next_ping = self.next_ping.wrapping_add(2) & 0x7fff_ffff;
        self.write(&frame).await
    }

    /// Resets the streams and sends GOAWAY, so that the other side ends what it runs for them.
    pub async fn close(&mut self) -> Result<(), SessionError> {
        let mut frames = BytesMut::new();
        for stream in (1..self.next_stream).step_by(2) {
            Encoder::rst_stream(stream, Reset::Cancel, &mut frames);
        }
        Encoder::go_away(&mut frames);
        self.write(&frames).await?;
        Ok(self.inner.shutdown().await?)
    }

    async fn write(&mut self, frames: &[u8]) -> Result<(), SessionError> {
        self.inner.write_all(frames).await?;
        loop {
            let Some(id) = self.pings.lock().pop_front() else { break };
            let mut answer = BytesMut::new();
            Encoder::ping(id, &mut answer);
            self.inner.write_all(&answer).await?;
        }
        Ok(self.inner.flush().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The other side of a session, frame by frame.
    struct Peer {
        stream: tokio::io::DuplexStream,
        decoder: Decoder,
        buffer: BytesMut,
    }

    impl Peer {
        async fn next(&mut self) -> Frame {
            loop {
                if let Some(frame) = self.decoder.next(&mut self.buffer).unwrap() {
                    return frame;
                }
                assert_ne!(self.stream.read_buf(&mut self.buffer).await.unwrap(), 0);
            }
        }
    }

    fn pair() -> (Session<tokio::io::DuplexStream>, Peer) {
        let (near, far) = tokio::io::duplex(4096);
        let peer = Peer { stream: far, decoder: Decoder::default(), buffer: BytesMut::new() };
        (Session::new(near), peer)
    }

    #[tokio::test]
    async fn streams_are_opened_one_by_one_and_early_data_is_kept() {
        let (mut session, mut peer) = pair();
        let serving = tokio::spawn(async move {
            let mut encoder = Encoder::default();
            for _ in 0..2 {
                let Frame::SynStream { stream, .. } = peer.next().await else { panic!() };
                let mut out = BytesMut::new();
                if stream == 3 {
                    Encoder::data_head(1, 2, false, &mut out);
                    out.extend_from_slice(b"hi");
                    Encoder::ping(2, &mut out);
                }
                encoder.syn_reply(stream, &[], &mut out);
                peer.stream.write_all(&out).await.unwrap();
            }
            let first = peer.next().await;
            let second = peer.next().await;
            (first, second)
        });
        assert_eq!(session.open(&[("streamtype", "error")]).await.unwrap(), 1);
        assert_eq!(session.open(&[("streamtype", "stdout")]).await.unwrap(), 3);
        let data = session.reader.next().await.unwrap();
        assert!(matches!(data, Frame::Data { stream: 1, bytes, fin: false } if bytes == "hi"));
        session.writer.finish(3).await.unwrap();
        let (first, second) = serving.await.unwrap();
        assert!(matches!(first, Frame::Data { stream: 3, fin: true, .. }), "{first:?}");
        assert_eq!(second, Frame::Ping { id: 2 }, "a ping is answered");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_is_refused_or_not_answered_is_an_error() {
        let (mut session, mut peer) = pair();
        let refusing = tokio::spawn(async move {
            peer.next().await;
            let mut out = BytesMut::new();
            Encoder::rst_stream(1, Reset::RefusedStream, &mut out);
            peer.stream.write_all(&out).await.unwrap();
            peer
        });
        assert!(matches!(session.open(&[]).await, Err(SessionError::Reset)));
        let peer = refusing.await.unwrap();
        assert!(matches!(session.open(&[]).await, Err(SessionError::Timeout)));
        drop(peer);
        assert!(matches!(session.open(&[]).await, Err(SessionError::Io(_) | SessionError::Closed)));
    }

    /// A peer that floods while a stream is opened costs a bounded amount of memory.
    #[tokio::test]
    async fn c16_early_frames_are_bounded() {
        let (mut session, mut peer) = pair();
        tokio::spawn(async move {
            let mut out = BytesMut::new();
            Encoder::data_head(1, 0, false, &mut out);
            while peer.stream.write_all(&out).await.is_ok() {}
        });
        assert!(matches!(session.open(&[]).await, Err(SessionError::Closed)));
    }
}
