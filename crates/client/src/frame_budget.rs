//! A bound on the frames of an HTTP/2 connection that carry no data. Data is held by flow control; responses 100 to
//! 199, pings, settings and resets are not, so that a server could send them without end: hyper takes each of
//! them, and for a call that waits they would cost processor time until its deadline.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use crate::dial::Stream;

/// Frames of each sort that a server may send for one request: its head, its trailers, a reset, and as many
/// informational responses as over HTTP/1.1.
const FRAMES_PER_REQUEST: usize = 3 + crate::transport::INFORMATIONAL_RESPONSES_MAX;
/// At any time, for servers that ping.
const FRAMES_PER_SECOND: f64 = 100.0;
/// A server may open the window once for so many bytes that it was sent. A frame with one byte has ten.
const BYTES_PER_WINDOW_UPDATE: usize = 5;
/// What is not used is saved up to so many frames: a connection has up to 100 requests at a time.
const FRAMES_MAX: usize = 100 * FRAMES_PER_REQUEST;

/// What a server may still send.
#[derive(Clone)]
pub(crate) struct FrameBudget(Arc<Mutex<Budget>>);

struct Budget {
    window_updates: usize,
    others: usize,
    refilled: Instant,
}

impl FrameBudget {
    pub(crate) fn new() -> Self {
        let (window_updates, others) = (FRAMES_PER_REQUEST, FRAMES_PER_REQUEST);
        Self(Arc::new(Mutex::new(Budget { window_updates, others, refilled: Instant::now() })))
    }

    /// A request is about to be sent.
    pub(crate) fn add_request(&self) {
        self.0.lock().add(FRAMES_PER_REQUEST, FRAMES_PER_REQUEST);
    }

    fn add_written(&self, bytes: usize) {
        self.0.lock().add(bytes.div_ceil(BYTES_PER_WINDOW_UPDATE), 0);
    }

    fn take(&self, frames: Frames) -> io::Result<()> {
        let mut budget = self.0.lock();
        if !budget.has(frames) {
            budget.refill();
        }
        if !budget.has(frames) {
            let why = "the server sends frames without end";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        budget.window_updates -= frames.window_updates;
        budget.others -= frames.others;
        Ok(())
    }
}

impl Budget {
    fn has(&self, frames: Frames) -> bool {
        self.window_updates >= frames.window_updates && self.others >= frames.others
    }

    fn add(&mut self, window_updates: usize, others: usize) {
        self.window_updates = self.window_updates.saturating_add(window_updates).min(FRAMES_MAX);
        self.others = self.others.saturating_add(others).min(FRAMES_MAX);
    }

    fn refill(&mut self) {
        let now = Instant::now();
        let frames = (now - self.refilled).as_secs_f64() * FRAMES_PER_SECOND;
        if frames >= 1.0 {
            self.refilled = now;
            self.add(frames as usize, frames as usize);
        }
    }
}

/// Frames that begin in what was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Frames {
    window_updates: usize,
    others: usize,
}

/// Finds frames in whatever pieces they arrive.
#[derive(Default)]
struct FrameHeads {
    head: [u8; HEAD_BYTES],
    read: usize,
    payload_left: usize,
}

const HEAD_BYTES: usize = 9;
const DATA: u8 = 0;
const WINDOW_UPDATE: u8 = 8;

impl FrameHeads {
    fn count(&mut self, mut bytes: &[u8]) -> Frames {
        let mut frames = Frames::default();
        while !bytes.is_empty() {
            if self.payload_left > 0 {
                let skipped = self.payload_left.min(bytes.len());
                self.payload_left -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let taken = (HEAD_BYTES - self.read).min(bytes.len());
            self.head[self.read..][..taken].copy_from_slice(&bytes[..taken]);
            self.read += taken;
            bytes = &bytes[taken..];
            if self.read < HEAD_BYTES {
                break;
            }
            self.read = 0;
            let [a, b, c, kind, ..] = self.head;
            self.payload_left = u32::from_be_bytes([0, a, b, c]) as usize;
            match kind {
                // Many small ones are h2's to refuse, but not those without a byte.
                DATA if self.payload_left > 0 => {}
                WINDOW_UPDATE => frames.window_updates += 1,
                _ => frames.others += 1,
            }
        }
        frames
    }
}

/// A connection on which a server that exceeds the budget fails.
pub(crate) struct BudgetedStream {
    stream: Box<dyn Stream>,
    heads: FrameHeads,
    budget: FrameBudget,
}

impl BudgetedStream {
    pub(crate) fn new(stream: Box<dyn Stream>, budget: FrameBudget) -> Self {
        Self { stream, heads: FrameHeads::default(), budget }
    }

    fn written(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.budget.add_written(bytes);
        }
        written
    }
}

impl AsyncRead for BudgetedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let frames = self.heads.count(&buffer.filled()[before..]);
        if frames != Frames::default() {
            self.budget.take(frames)?;
        }
        read
    }
}

impl AsyncWrite for BudgetedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 1], payload].concat()
    }

    #[test]
    fn frames_are_found_in_whatever_pieces_they_arrive() {
        let bytes = [
            frame(DATA, &[1; 300]),
            frame(DATA, &[]),
            frame(1, b"\x88"),
            frame(WINDOW_UPDATE, &[0; 4]),
            frame(6, &[9; 8]),
            frame(DATA, &frame(6, &[0; 8])),
        ]
        .concat();
        for piece in [1, 2, 8, 9, 10, 1_000] {
            let mut heads = FrameHeads::default();
            let mut all = Frames::default();
            for piece in bytes.chunks(piece) {
                let found = heads.count(piece);
                all.window_updates += found.window_updates;
                all.others += found.others;
            }
            assert_eq!(all, Frames { window_updates: 1, others: 3 }, "{piece}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_sends_frames_without_end_fails() {
        for kind in [1, 3, 4, 6, WINDOW_UPDATE, 99] {
            let (near, mut far) = duplex(1 << 20);
            let budget = FrameBudget::new();
            let mut stream = BudgetedStream::new(Box::new(near), budget.clone());
            budget.add_request();
            let mut read = vec![0; 64];
            let mut frames = 0;
            let ended = loop {
                far.write_all(&frame(kind, &[0; 4])).await.expect("space");
                match stream.read(&mut read).await {
                    Ok(_) => frames += 1,
                    Err(error) => break error,
                }
            };
            assert_eq!(ended.kind(), io::ErrorKind::InvalidData);
            assert_eq!(frames, 2 * FRAMES_PER_REQUEST, "of type {kind}");
            // A server that goes on slowly, as one that pings does, is none.
            tokio::time::advance(Duration::from_secs(1)).await;
            for _ in 0..50 {
                far.write_all(&frame(kind, &[0; 4])).await.expect("space");
                let bytes = stream.read(&mut read).await.expect("within the budget");
                assert_ne!(bytes, 0, "of type {kind}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_sent_may_be_acknowledged_and_answered() {
        let (near, mut far) = duplex(1 << 20);
        let budget = FrameBudget::new();
        let mut stream = BudgetedStream::new(Box::new(near), budget.clone());
        let mut read = [0; 64];
        for _ in 0..10_000 {
            budget.add_request();
            stream.write_all(&frame(DATA, &[7])).await.expect("space");
            far.read_exact(&mut read[..10]).await.expect("sent");
            let window = frame(WINDOW_UPDATE, &[0; 4]);
            let answer = [&window[..], &window, &frame(1, b"\x88"), &frame(1, b"")].concat();
            far.write_all(&answer).await.expect("space");
            stream.read_exact(&mut read[..answer.len()]).await.expect("within the budget");
        }
    }
}
