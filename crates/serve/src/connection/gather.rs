//! Writes gathered: what the streams of an HTTP/2 connection say in one turn leaves in one call to the kernel.
//!
//! The HTTP/2 library flushes after each frame, and the TLS stream writes to the socket with each flush: a list costs a
//! system call for 16 KB, an event to a hundred watchers a hundred of them. Here frames are only encrypted; the task of the
//! connection sends them when its turn is over ([`Outgoing::poll_send`]), or the write that finds the buffer full does.

use std::io::{self, IoSlice, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::activity::Activity;

/// The encrypted side of an HTTP/2 connection, as the library sees it: a flush is put off.
pub(super) struct Gathered {
    // Only the task of the connection takes the lock, so it is never waited for.
    stream: Arc<Mutex<TlsStream<TcpStream>>>,
    activity: Arc<Activity>,
}

/// The same, as the task of the connection sees it.
pub(super) struct Outgoing {
    stream: Arc<Mutex<TlsStream<TcpStream>>>,
    activity: Arc<Activity>,
}

/// Splits a stream into what writes and what sends.
pub(super) fn gather(
    stream: TlsStream<TcpStream>,
    activity: Arc<Activity>,
) -> (Gathered, Outgoing) {
    let stream = Arc::new(Mutex::new(stream));
    (Gathered { stream: stream.clone(), activity: activity.clone() }, Outgoing { stream, activity })
}

/// What one connection may hold encrypted; the write that comes next sends it first. Twice as much saves nothing more.
const GATHERED_BYTES_MAX: usize = 128 << 10;
/// The same while many connections wait to send: hundreds of clients that read slowly hold hundreds of these.
const CROWDED_BYTES_MAX: usize = 16 << 10;

impl Outgoing {
    /// Sends what was written so far. `Pending` while the socket does not take it all.
    pub(super) fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut stream = self.stream.lock();
        if !stream.get_ref().1.wants_write() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.activity.turn().poll_send(cx));
        let sent = Pin::new(&mut *stream).poll_flush(cx);
        self.activity.wrote(sent.is_pending());
        sent
    }

    /// The stream, once the HTTP library has let go of it.
    pub(super) fn into_stream(self) -> Option<TlsStream<TcpStream>> {
        Arc::into_inner(self.stream).map(Mutex::into_inner)
    }
}

impl AsyncRead for Gathered {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream.lock()).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Gathered {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut stream = self.stream.lock();
        let crowded = self.activity.turn().is_crowded();
        let bytes_max = if crowded { CROWDED_BYTES_MAX } else { GATHERED_BYTES_MAX };
        stream.get_mut().1.set_buffer_limit(Some(bytes_max));
        loop {
            let written = stream.get_mut().1.writer().write_vectored(buffers)?;
            if written > 0 || buffers.iter().all(|buffer| buffer.is_empty()) {
                return Poll::Ready(Ok(written));
            }
            ready!(Pin::new(&mut *stream).poll_flush(cx))?;
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Put off until the turn of the connection is over.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream.lock()).poll_shutdown(cx)
    }
}
