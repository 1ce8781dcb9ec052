//! How a connection to a host is opened. The default is TCP; egress proxies implement [`Dial`].

use std::{net::SocketAddr, sync::Arc, time::Duration};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::{Instant, timeout},
};

use crate::{BoxFuture, error::DialError};

/// Opens a byte stream to a host; TLS and HTTP are spoken over it.
pub trait Dial: Send + Sync {
    /// `host` is a name or an IP address, without brackets.
    fn dial<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, Result<Box<dyn Stream>, DialError>>;
}

/// Anything that bytes go through in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// How webhooks of the cluster's users are dialed, where an egress selector says so. None: directly.
#[derive(Clone, Default)]
pub struct WebhookDials {
    /// Those behind Services, which are in the cluster.
    pub service: Option<Arc<dyn Dial>>,
    /// Those with a URL.
    pub url: Option<Arc<dyn Dial>>,
}

impl WebhookDials {
    pub fn of(&self, is_service: bool) -> Option<Arc<dyn Dial>> {
        if is_service { self.service.clone() } else { self.url.clone() }
    }
}

/// Plain TCP: every address of a name is tried in the order of the resolver.
#[derive(Clone, Copy, Debug)]
pub struct TcpDial {
    /// For all addresses of a name together.
    pub connect_timeout: Duration,
}

/// Compat: as long as client-go's transports wait.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// An address gets at least this long, even if there are many.
const ADDRESS_TIMEOUT_MIN: Duration = Duration::from_secs(2);
/// A dead peer is noticed by the kernel after a few of these, also between calls.
const KEEPALIVE: Duration = Duration::from_secs(30);

impl Default for TcpDial {
    fn default() -> Self {
        Self { connect_timeout: CONNECT_TIMEOUT }
    }
}

impl Dial for TcpDial {
    fn dial<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, Result<Box<dyn Stream>, DialError>> {
        Box::pin(async move {
            let tcp = self.connect(host, port).await?;
            // Neither is worth failing for: without them calls are slower, or die later.
            let _ = tcp.set_nodelay(true);
            let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
            let _ = SockRef::from(&tcp).set_tcp_keepalive(&keepalive);
            Ok(Box::new(tcp) as Box<dyn Stream>)
        })
    }
}

impl TcpDial {
    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, DialError> {
        let lookup_failed = |source| DialError::Lookup { host: host.to_owned(), source };
        let found = tokio::net::lookup_host((host, port)).await.map_err(lookup_failed)?;
        let addresses: Vec<SocketAddr> = found.collect();
        let until = Instant::now() + self.connect_timeout;
        let mut failure =
            lookup_failed(std::io::Error::new(std::io::ErrorKind::NotFound, "no addresses"));
        for (tried, address) in addresses.iter().enumerate() {
            let address = *address;
            // The time that is left is shared, so that one dead address does not use up all of it.
            let left = until.saturating_duration_since(Instant::now());
            let share = left / (addresses.len() - tried) as u32;
            let share = share.max(ADDRESS_TIMEOUT_MIN.min(self.connect_timeout));
            failure = match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(tcp)) => return Ok(tcp),
                Ok(Err(source)) => DialError::Connect { address, source },
                Err(_) => DialError::Timeout { address },
            };
        }
        Err(failure)
    }
}
