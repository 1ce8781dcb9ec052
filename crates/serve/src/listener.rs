//! The listening socket, the connections that came in through it, and how they all go.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use background::Tasks;
use futures_util::future::{Either, select};
use parking_lot::Mutex;
use prometheus::IntCounter;
use rustls_pki_types::CertificateDer;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use crate::connection::{
    Closer, Handler, Limits, Peer, Service, canonical, serve, serve_in_process,
};
use crate::tls::Tls;

/// How the listening socket shares its address with others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sharing {
    /// `--permit-address-sharing`: bind next to another socket on an overlapping address.
    pub address: bool,
    /// `--permit-port-sharing`: several processes on the same address and port.
    pub port: bool,
}

/// A bound socket. Clients can connect from now on; they are answered once it serves.
pub struct Listener {
    inner: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Port 0 takes a free one, see [`Listener::address`]. Must be called inside the runtime.
    pub fn bind(address: SocketAddr, sharing: Sharing) -> io::Result<Self> {
        let inner = match address.ip() {
            // Compat: for Go "all addresses" means both families, however it is written.
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => {
                let both = SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port()));
                match listen(both, sharing) {
                    Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                        listen(address, sharing)?
                    }
                    other => other?,
                }
            }
            _ => listen(address, sharing)?,
        };
        let port = inner.local_addr()?.port();
        let inner = TcpListener::from_std(inner)?;
        Ok(Self { inner, address: SocketAddr::new(address.ip(), port) })
    }

    /// The address as it was asked for, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts to serve in the background.
    pub fn serve(
        self,
        tls: Arc<Tls>,
        handler: Arc<dyn Handler>,
        limits: Limits,
        tasks: &Tasks,
    ) -> Server {
        let server = Server::without_port(self.address, tls, handler, limits);
        let (service, connections) = (server.service.clone(), server.connections.clone());
        let (open, closed) = watch::channel(());
        let socket = Arc::new(ListeningSocket { inner: self.inner, _open: open });
        let accepting = tasks.restarting("listener", move || {
            accept(socket.clone(), service.clone(), connections.clone())
        });
        *server.accept.lock() = Some(Accepting { task: accepting, closed });
        tracing::info!("Serving securely on {}", self.address);
        server
    }
}

fn listen(address: SocketAddr, sharing: Sharing) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // Also without --permit-address-sharing, as Go does: a restart must not wait for the connections of the last run.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(sharing.port)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// The kernel cuts it to its own maximum.
const BACKLOG: i32 = 4096;

/// A server that is running. Dropping it leaves it running; [`Server::shutdown`] ends it.
pub struct Server {
    address: SocketAddr,
    service: Arc<Service>,
    connections: Arc<Connections>,
    accept: Mutex<Option<Accepting>>,
}

/// The task that accepts connections.
struct Accepting {
    task: AbortHandle,
    /// Fails when the socket is closed.
    closed: watch::Receiver<()>,
}

/// Closed with the last reference, and only then `_open`.
struct ListeningSocket {
    inner: TcpListener,
    _open: watch::Sender<()>,
}

impl Server {
    /// A server that others can't connect to; clients of the same process come through [`Server::attach`].
    pub fn without_port(
        address: SocketAddr,
        tls: Arc<Tls>,
        handler: Arc<dyn Handler>,
        limits: Limits,
    ) -> Self {
        let service = Arc::new(Service::new(tls, handler, limits));
        let connections = Arc::new(Connections::new());
        Self { address, service, connections, accept: Mutex::default() }
    }

    /// Serves a client of the same process, without TLS, over HTTP/1.1. It is who the certificates say, as if it had
    /// shown them in a handshake. Must be called inside the runtime.
    pub fn attach<S>(&self, stream: S, certificates: Vec<CertificateDer<'static>>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let registration = self.connections.register();
        let (id, service) = (registration.id, self.service.clone());
        let close = registration.close.clone();
        let peer = Arc::new(Peer::in_process(certificates, &service.tls, close));
        let task = tokio::spawn(async move {
            let _registration = registration;
            serve_in_process(&service, stream, peer).await;
        });
        if let Some(open) = self.connections.open.lock().get_mut(&id) {
            open.task = Some(task.abort_handle());
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections that are open, those still shaking hands included.
    pub fn connections(&self) -> usize {
        self.connections.open.lock().len()
    }

    /// Handshakes that failed since the start, to be registered with the other metrics.
    pub fn handshake_errors(&self) -> &IntCounter {
        &self.connections.handshake_errors
    }

    /// Closes the listening socket: new clients are refused, those that are there stay.
    pub async fn stop_listening(&self) {
        let accept = self.accept.lock().take();
        if let Some(mut accept) = accept {
            accept.task.abort();
            // Nothing is ever sent: it waits until the task has ended and the socket is closed.
            let _ = accept.closed.changed().await;
            tracing::info!("Stopped listening on {}", self.address);
        }
    }

    /// Stops listening, lets running requests end, then closes their connections; after `timeout` the rest is cut off.
    /// Returns how many had to be.
    pub async fn shutdown(&self, timeout: Duration) -> usize {
        self.stop_listening().await;
        self.connections.close_all();
        if tokio::time::timeout(timeout, self.connections.all_gone()).await.is_ok() {
            return 0;
        }
        self.connections.abort_all()
    }
}

struct Open {
    close: Arc<Closer>,
    /// Known as soon as its task is.
    task: Option<AbortHandle>,
}

/// Every open connection, and how to end it.
struct Connections {
    open: Mutex<HashMap<u64, Open>>,
    next: AtomicU64,
    gone: Notify,
    handshakes: AtomicUsize,
    handshake_errors: IntCounter,
}

impl Connections {
    fn new() -> Self {
        let handshake_errors =
            IntCounter::new("apiserver_tls_handshake_errors_total", "TLS handshakes that failed.");
        Self {
            open: Mutex::default(),
            next: AtomicU64::default(),
            gone: Notify::default(),
            handshakes: AtomicUsize::default(),
            handshake_errors: handshake_errors.expect("valid names"),
        }
    }

    fn register(self: &Arc<Self>) -> Registration {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let close = Arc::new(Closer::default());
        self.open.lock().insert(id, Open { close: close.clone(), task: None });
        Registration { connections: self.clone(), id, close }
    }

    fn close_all(&self) {
        for open in self.open.lock().values() {
            open.close.close();
        }
    }

    fn abort_all(&self) -> usize {
        let open: Vec<_> = self.open.lock().values().filter_map(|open| open.task.clone()).collect();
        for task in &open {
            task.abort();
        }
        open.len()
    }

    async fn all_gone(&self) {
        loop {
            let mut gone = pin!(self.gone.notified());
            gone.as_mut().enable();
            if self.open.lock().is_empty() {
                return;
            }
            gone.await;
        }
    }
}

/// Takes a connection off the list when its task ends, however it ends.
struct Registration {
    connections: Arc<Connections>,
    id: u64,
    close: Arc<Closer>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.connections.open.lock().remove(&self.id);
        self.connections.gone.notify_waiters();
    }
}

async fn accept(
    socket: Arc<ListeningSocket>,
    service: Arc<Service>,
    connections: Arc<Connections>,
) {
    let mut pause = ACCEPT_PAUSE_MIN;
    loop {
        match socket.inner.accept().await {
            Ok((stream, address)) => {
                pause = ACCEPT_PAUSE_MIN;
                if connections.open.lock().len() >= service.limits.connections_max {
                    tracing::debug!(peer = %address, "too many connections");
                    continue;
                }
                let registration = connections.register();
                let id = registration.id;
                let task = tokio::spawn(connection(service.clone(), stream, registration));
                if let Some(open) = connections.open.lock().get_mut(&id) {
                    open.task = Some(task.abort_handle());
                }
            }
            // Out of file descriptors, most likely: they are freed as connections end.
            Err(error) => {
                tracing::warn!(%error, retry_in = ?pause, "accepting a connection failed");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
            }
        }
    }
}

const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(5);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

async fn connection(service: Arc<Service>, stream: TcpStream, registration: Registration) {
    let Ok(address) = stream.peer_addr().map(canonical) else { return };
    let tls = {
        let closing = pin!(poll_fn(|cx| registration.close.poll_requested(cx)));
        let handshake = pin!(handshake(&service, stream, &registration.connections));
        match select(handshake, closing).await {
            Either::Left((Ok(tls), _)) => tls,
            Either::Left((Err(error), _)) => {
                registration.connections.handshake_errors.inc();
                tracing::debug!(peer = %address, %error, "TLS handshake error");
                return;
            }
            Either::Right(_) => return,
        }
    };
    if let Err(error) = serve(&service, tls, registration.close.clone()).await {
        tracing::debug!(peer = %address, %error, "connection was lost");
    }
}

async fn handshake(
    service: &Service,
    stream: TcpStream,
    connections: &Connections,
) -> io::Result<tokio_rustls::server::TlsStream<TcpStream>> {
    let _slot = HandshakeSlot::take(&connections.handshakes)
        .ok_or_else(|| io::Error::other("too many handshakes at a time"))?;
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    let shaking = async {
        let stream = refuse_plain_http(stream).await?;
        let local = canonical(stream.local_addr()?).ip();
        TlsAcceptor::from(service.tls.config_for(local)).accept(stream).await
    };
    let timed_out = || io::Error::new(io::ErrorKind::TimedOut, "handshake took too long");
    tokio::time::timeout(service.limits.handshake_timeout, shaking)
        .await
        .unwrap_or_else(|_| Err(timed_out()))
}

/// What the kernel takes for a client before the client's kernel has made room for it. Without a bound a client that reads
/// nothing costs up to 4 MB of the kernel's memory, and the time to encrypt and copy them: 200 silent watchers 2 s of CPU.
#[cfg(target_os = "linux")]
const UNSENT_BYTES_MAX: u32 = 256 << 10;

/// Finds connections whose other end is gone.
const KEEPALIVE: Duration = Duration::from_mins(3);

/// One of a bounded number of handshakes: connections that never say anything must not fill the memory.
struct HandshakeSlot<'a>(&'a AtomicUsize);

impl<'a> HandshakeSlot<'a> {
    fn take(count: &'a AtomicUsize) -> Option<Self> {
        let slot = Self(count);
        (count.fetch_add(1, Ordering::Relaxed) < HANDSHAKES_MAX).then_some(slot)
    }
}

impl Drop for HandshakeSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A silent connection costs a few kilobytes and is closed after the handshake timeout; beyond this many a new one is
/// closed at once.
const HANDSHAKES_MAX: usize = 16_384;

/// A client that speaks HTTP to the HTTPS port gets a 400 in plain text.
async fn refuse_plain_http(mut stream: TcpStream) -> io::Result<TcpStream> {
    let mut start = [0; 5];
    let length = stream.peek(&mut start).await?;
    let start = &start[..length];
    let http =
        PLAIN_HTTP_STARTS.iter().any(|method| !start.is_empty() && method.starts_with(start));
    if !http {
        return Ok(stream);
    }
    let text = "Client sent an HTTP request to an HTTPS server.\n";
    stream.write_all(format!("HTTP/1.0 400 Bad Request\r\n\r\n{text}").as_bytes()).await?;
    // Reading what the client sent keeps the kernel from resetting the connection before the answer arrived.
    stream.shutdown().await?;
    let mut sent = [0; 4096];
    for _ in 0..PLAIN_HTTP_READS_MAX {
        if tokio::io::AsyncReadExt::read(&mut stream, &mut sent).await? == 0 {
            break;
        }
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        "client sent an HTTP request to an HTTPS server",
    ))
}

const PLAIN_HTTP_STARTS: [&[u8]; 5] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO"];
const PLAIN_HTTP_READS_MAX: usize = 16;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
