//! Which addresses the server connects to on behalf of clients. A client that may write a node's, pod's or
//! Service's addresses must not be able to point the server at itself or at its own machine.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
};

use client::{BoxFuture, Dial, DialError, Stream};

/// Compat: Go's `IP.IsGlobalUnicast`. Neither loopback, link-local, multicast, broadcast nor
/// unspecified, also where IPv6 wraps such an IPv4 address.
pub fn is_allowed(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            !(v4.is_unspecified()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_broadcast())
        }
        IpAddr::V6(v6) => {
            !(v6.is_unspecified()
                || v6.is_loopback()
                || v6.is_unicast_link_local()
                || v6.is_multicast())
        }
    }
}

/// Turns names into addresses.
pub trait Resolver: Send + Sync {
    fn lookup<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The host's own resolver.
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn lookup<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// Dials only addresses that are allowed. A name is resolved once, all of its addresses are checked,
/// and these very addresses are dialed: a second answer of the name server has no effect.
pub struct AllowedDial {
    pub way: Way,
    pub resolver: Arc<dyn Resolver>,
    pub own_port: OwnPort,
}

/// How an allowed address is reached.
pub enum Way {
    Direct(Arc<dyn Dial>),
    /// Through an egress proxy, which resolves names itself: they may mean nothing here.
    Proxy(Arc<dyn Dial>),
}

/// The port that this server listens on, once it does. Nothing is sent to it as if it were a kubelet's.
#[derive(Clone, Default)]
pub struct OwnPort(Arc<AtomicU16>);

impl OwnPort {
    pub fn set(&self, port: u16) {
        self.0.store(port, Ordering::Release);
    }

    /// Whether this is the server's own socket: its port at an address of this machine.
    async fn is(&self, address: IpAddr, port: u16) -> bool {
        port == self.0.load(Ordering::Acquire) && is_local(address).await
    }
}

/// Whether packets to an address would come back to this machine: the kernel then chooses that very
/// address as their source. No packet is sent.
async fn is_local(address: IpAddr) -> bool {
    let any: SocketAddr = match address {
        IpAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        IpAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let Ok(socket) = tokio::net::UdpSocket::bind(any).await else { return false };
    if socket.connect((address, 9)).await.is_err() {
        return false;
    }
    socket.local_addr().is_ok_and(|source| source.ip() == address)
}

impl AllowedDial {
    /// The addresses of a host, if all of them are allowed.
    pub async fn resolve(&self, host: &str, port: u16) -> Result<Vec<IpAddr>, DialError> {
        let not_allowed = || DialError::NotAllowed { host: host.to_owned() };
        let addresses = match host.parse() {
            Ok(address) => vec![address],
            Err(_) => self.resolver.lookup(host).await.map_err(|source| {
                let host = host.to_owned();
                DialError::Lookup { host, source }
            })?,
        };
        if addresses.is_empty() {
            let source = io::Error::new(io::ErrorKind::NotFound, "no addresses for hostname");
            return Err(DialError::Lookup { host: host.to_owned(), source });
        }
        for address in &addresses {
            if !is_allowed(*address) || self.own_port.is(*address, port).await {
                return Err(not_allowed());
            }
        }
        Ok(addresses)
    }

    async fn dial_allowed(&self, host: &str, port: u16) -> Result<Box<dyn Stream>, DialError> {
        let direct = match &self.way {
            Way::Direct(direct) => direct,
            Way::Proxy(proxy) => {
                if is_refused_by_name(host) {
                    return Err(DialError::NotAllowed { host: host.to_owned() });
                }
                return proxy.dial(host, port).await;
            }
        };
        let mut failure = None;
        for address in self.resolve(host, port).await? {
            match direct.dial(&address.to_string(), port).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.expect("there is at least one address"))
    }
}

/// What needs no resolver to be refused: addresses, and the names of one's own machine.
fn is_refused_by_name(host: &str) -> bool {
    match host.parse() {
        Ok(address) => !is_allowed(address),
        Err(_) => {
            let name = host.trim_end_matches('.').to_ascii_lowercase();
            name == "localhost" || name.ends_with(".localhost")
        }
    }
}

impl Dial for AllowedDial {
    fn dial<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, Result<Box<dyn Stream>, DialError>> {
        Box::pin(self.dial_allowed(host, port))
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn c04_only_global_unicast_addresses_are_allowed() {
        let cases = [
            ("192.0.2.1", true),
            ("10.0.0.1", true),
            ("2001:db8::1", true),
            ("fd00::1", true),
            ("::ffff:192.0.2.1", true),
            ("127.0.0.1", false),
            ("127.255.0.9", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("169.254.1.1", false),
            ("169.254.169.254", false),
            ("::ffff:169.254.1.1", false),
            ("fe80::1", false),
            ("224.0.0.1", false),
            ("ff02::1", false),
            ("255.255.255.255", false),
            ("0.0.0.0", false),
            ("::", false),
        ];
        for (address, expected) in cases {
            assert_eq!(is_allowed(address.parse().unwrap()), expected, "{address}");
        }
    }

    /// Answers with the next of several lists of addresses.
    struct Answers(Mutex<Vec<Vec<&'static str>>>);

    impl Resolver for Answers {
        fn lookup<'a>(&'a self, _host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
            let answer = self.0.lock().remove(0);
            let addresses = answer.iter().map(|text| text.parse().unwrap()).collect();
            Box::pin(async move { Ok(addresses) })
        }
    }

    /// Notes what is dialed, and never connects.
    #[derive(Default)]
    struct Dialed(Mutex<Vec<String>>);

    impl Dial for Dialed {
        fn dial<'a>(
            &'a self,
            host: &'a str,
            port: u16,
        ) -> BoxFuture<'a, Result<Box<dyn Stream>, DialError>> {
            self.0.lock().push(format!("{host} {port}"));
            let source = "refused".into();
            Box::pin(async move { Err(DialError::Other { host: host.to_owned(), port, source }) })
        }
    }

    async fn dial(
        answers: Vec<Vec<&'static str>>,
        host: &str,
        port: u16,
        through_proxy: bool,
    ) -> (String, Vec<String>) {
        let dialed = Arc::new(Dialed::default());
        let way =
            if through_proxy { Way::Proxy(dialed.clone()) } else { Way::Direct(dialed.clone()) };
        let own_port = OwnPort::default();
        own_port.set(6443);
        let resolver = Arc::new(Answers(Mutex::new(answers)));
        let guarded = AllowedDial { way, resolver, own_port };
        let Err(error) = guarded.dial(host, port).await else { panic!("nothing connects") };
        (error.to_string(), std::mem::take(&mut *dialed.0.lock()))
    }

    /// CVE-2020-8562: the name is resolved once, and what was checked is what is dialed.
    #[tokio::test]
    async fn c05_the_address_that_was_checked_is_dialed() {
        let changing = vec![vec!["192.0.2.7"], vec!["127.0.0.1"]];
        let (_, dialed) = dial(changing, "node.example", 10250, false).await;
        assert_eq!(dialed, ["192.0.2.7 10250"]);
    }

    #[tokio::test]
    async fn c04_names_with_one_address_that_is_not_allowed_are_refused() {
        for answer in
            [vec!["127.0.0.1"], vec!["192.0.2.7", "169.254.1.1"], vec!["::ffff:127.0.0.1"]]
        {
            let (error, dialed) = dial(vec![answer], "node.example", 10250, false).await;
            assert_eq!((error.as_str(), dialed), ("address not allowed", vec![]));
        }
        for host in ["127.0.0.1", "::1", "localhost", "LOCALHOST.", "a.localhost"] {
            let (error, dialed) = dial(vec![], host, 10250, true).await;
            assert_eq!((error.as_str(), dialed), ("address not allowed", vec![]), "{host}");
        }
        let (_, dialed) = dial(vec![], "node.example", 10250, true).await;
        assert_eq!(dialed, ["node.example 10250"], "a proxy resolves names itself");
    }

    /// The server's own port at an address of this machine; another port there may be a kubelet's.
    #[tokio::test]
    async fn c06_the_server_does_not_dial_itself() {
        let own = OwnPort::default();
        own.set(6443);
        assert!(own.is([127, 0, 0, 1].into(), 6443).await);
        assert!(!own.is([127, 0, 0, 1].into(), 10250).await);
        assert!(!own.is([192, 0, 2, 1].into(), 6443).await);
    }
}
