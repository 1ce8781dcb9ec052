//! The end of a connection whose client is still sending.
//!
//! A refusal is sent before the request's body was read. If the server closed its socket now, the kernel would answer the rest of
//! the body with a reset, and a reset makes the client's kernel throw away the answer that the client has not read yet. So the
//! server closes its own direction only, and discards what still arrives, for a bounded time and up to a bounded number of bytes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio_rustls::server::TlsStream;

use super::{Limits, Service};

/// Waits for the client to end its side. What it sends is neither decrypted nor kept.
pub(super) async fn linger(mut stream: TlsStream<TcpStream>, service: &Service) {
    let Ok(_slot) = service.lingering.try_acquire() else { return };
    let limits = &service.limits;
    // However it ends, the connection is closed.
    let _ = tokio::time::timeout(limits.linger_timeout, discard(&mut stream, limits)).await;
}

async fn discard(stream: &mut TlsStream<TcpStream>, limits: &Limits) -> io::Result<()> {
    stream.shutdown().await?;
    let socket = stream.get_mut().0;
    let mut buffer = vec![0; READ_BYTES];
    let mut left = limits.linger_bytes_max;
    while left > 0 {
        let read = tokio::time::timeout(limits.linger_quiet_timeout, socket.read(&mut buffer));
        match read.await {
            Ok(Ok(count)) if count > 0 => left = left.saturating_sub(count),
            _ => break,
        }
    }
    Ok(())
}

const READ_BYTES: usize = 16 << 10;

/// A stream that comes back when the HTTP library drops it.
pub(super) struct Lent {
    /// Present until the drop.
    stream: Option<TlsStream<TcpStream>>,
    home: Home,
    service: Arc<Service>,
}

/// Where a lent stream comes back to.
pub(super) struct Lender(Home);

type Home = Arc<Mutex<Option<TlsStream<TcpStream>>>>;

/// Lends a stream to the HTTP library.
pub(super) fn lend(stream: TlsStream<TcpStream>, service: &Arc<Service>) -> (Lent, Lender) {
    let home = Home::default();
    let lent = Lent { stream: Some(stream), home: home.clone(), service: service.clone() };
    (lent, Lender(home))
}

impl Lender {
    /// The stream, unless it is still in use: an upgraded connection belongs to its handler.
    pub(super) fn returned(self) -> Option<TlsStream<TcpStream>> {
        self.0.lock().take()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        if Arc::strong_count(&self.home) > 1 {
            *self.home.lock() = Some(stream);
        } else if let Ok(runtime) = Handle::try_current() {
            // An upgraded connection that its handler has ended, perhaps while the client was sending.
            let service = self.service.clone();
            runtime.spawn(async move { linger(stream, &service).await });
        }
    }
}

impl Lent {
    fn stream(&mut self) -> Pin<&mut TlsStream<TcpStream>> {
        Pin::new(self.stream.as_mut().expect("taken by the drop only"))
    }
}

impl AsyncRead for Lent {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(cx, buffer)
    }
}

impl AsyncWrite for Lent {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}
