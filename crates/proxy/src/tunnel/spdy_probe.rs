//! Learns whether a client that speaks SPDY is still there, while nothing can be read from it.
//!
//! A host whose process has closed a connection answers what is sent to it by a reset, which the next write meets. What
//! is sent here has to be harmless: an empty SETTINGS frame, which needs no answer. A ping does, and a client that
//! cannot send would wait for its answer to be taken before it reads on.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncWrite, AsyncWriteExt as _};

/// SPDY/3.1: a control frame of type 4 with no settings.
pub(super) const EMPTY_SETTINGS: &[u8; 12] = &[0x80, 3, 0, 4, 0, 0, 0, 4, 0, 0, 0, 0];

/// The way to the client. It counts frames, so that probes come between two of them.
pub(super) struct ProbedWriter<W> {
    inner: W,
    frames: FrameCounter,
    /// What is left of a probe that the connection did not take whole.
    unsent: &'static [u8],
}

impl<W: AsyncWrite + Unpin> ProbedWriter<W> {
    pub(super) fn new(inner: W) -> Self {
        Self { inner, frames: FrameCounter::default(), unsent: &[] }
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let unsent = std::mem::take(&mut self.unsent);
        self.inner.write_all(unsent).await?;
        self.frames.pass(bytes);
        self.inner.write_all(bytes).await?;
        self.inner.flush().await
    }

    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        self.inner.shutdown().await
    }

    /// Sends as much of a probe as the connection takes at once. Fails if the client is gone. In the middle of a
    /// frame of the backend nothing can be sent.
    pub(super) async fn probe(&mut self) -> io::Result<()> {
        if !self.frames.is_between_frames() {
            return Ok(());
        }
        if self.unsent.is_empty() {
            self.unsent = EMPTY_SETTINGS;
        }
        poll_fn(|cx| Poll::Ready(self.send_without_waiting(cx))).await
    }

    fn send_without_waiting(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let Poll::Ready(sent) = Pin::new(&mut self.inner).poll_write(cx, self.unsent) {
            self.unsent = &self.unsent[sent?..];
        }
        match Pin::new(&mut self.inner).poll_flush(cx) {
            Poll::Ready(flushed) => flushed,
            Poll::Pending => Ok(()),
        }
    }
}

/// Where the frames of a direction end: a head of eight bytes has the length of the rest in its last three.
#[derive(Default)]
struct FrameCounter {
    head: [u8; 8],
    head_bytes: usize,
    body_left: usize,
}

impl FrameCounter {
    fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.body_left > 0 {
                let skipped = self.body_left.min(bytes.len());
                self.body_left -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let count = (self.head.len() - self.head_bytes).min(bytes.len());
            self.head[self.head_bytes..self.head_bytes + count].copy_from_slice(&bytes[..count]);
            self.head_bytes += count;
            bytes = &bytes[count..];
            if self.head_bytes == self.head.len() {
                let [.., a, b, c] = self.head;
                self.body_left = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                self.head_bytes = 0;
            }
        }
    }

    fn is_between_frames(&self) -> bool {
        self.head_bytes == 0 && self.body_left == 0
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, duplex};

    use super::*;

    /// A data frame of stream 1.
    fn frame(body: &[u8]) -> Vec<u8> {
        let mut frame = vec![0, 0, 0, 1, 0, 0, 0, u8::try_from(body.len()).expect("short")];
        frame.extend_from_slice(body);
        frame
    }

    #[tokio::test]
    async fn probes_come_between_the_frames_of_the_backend() {
        for split in 0..=2 * frame(b"hello").len() {
            let (near, mut far) = duplex(1024);
            let mut writer = ProbedWriter::new(near);
            let both = [frame(b"hello"), frame(b"again")].concat();
            let (first, second) = both.split_at(split);
            writer.write(first).await.unwrap();
            writer.probe().await.unwrap();
            writer.write(second).await.unwrap();
            drop(writer);
            let mut got = Vec::new();
            far.read_to_end(&mut got).await.unwrap();
            let mut expected = both.clone();
            if split % frame(b"hello").len() == 0 {
                expected.splice(split..split, *EMPTY_SETTINGS);
            }
            assert_eq!(got, expected, "{split}");
        }
    }

    /// What a connection takes only in part is completed before anything else.
    #[tokio::test]
    async fn a_probe_never_waits_and_is_sent_once() {
        let (near, mut far) = duplex(5);
        let mut writer = ProbedWriter::new(near);
        for _ in 0..3 {
            writer.probe().await.unwrap();
        }
        let writing = async {
            writer.write(&frame(b"hello")).await.unwrap();
            drop(writer);
        };
        let mut got = Vec::new();
        let reading = async { far.read_to_end(&mut got).await.unwrap() };
        tokio::join!(writing, reading);
        assert_eq!(got, [EMPTY_SETTINGS.as_slice(), &frame(b"hello")].concat());
    }
}
