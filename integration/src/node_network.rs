//! A network of nodes and pods that is only in the test: an egress proxy which connects documentation addresses
//! (192.0.2.0/24) to listeners on loopback. The server never dials an address itself, so nothing has to be
//! allowed that it refuses otherwise. Where it shall dial, the node has an address of this machine.

use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use crate::certificates::{Authority, Pair};
use crate::connect_proxy::ConnectProxy;
use crate::http::runtime;
use crate::konnectivity::KonnectivityServer;
use crate::process::{Process, directory};
use crate::process_cleanup::ProcessCleanup;
use crate::programs;
use crate::server::{Flavour, Server};

/// A server with one node, whose kubelet is the stand-in of `tools/kubelet`.
pub struct NodeNetwork {
    pub server: Server,
    pub kubelet: Kubelet,
    authority: Authority,
    proxy: Proxy,
    _cleanup: Arc<ProcessCleanup>,
}

/// How the server reaches the node.
pub enum Way {
    /// HTTP CONNECT on a unix socket.
    ConnectUnix,
    /// HTTP CONNECT over TLS.
    ConnectTls,
    Konnectivity,
    /// An address of this machine that is not loopback.
    Direct(IpAddr),
}

enum Proxy {
    Connect(ConnectProxy),
    Konnectivity(KonnectivityServer),
    Direct(AbortHandle),
}

/// The address by which other machines would see this one. None: it has no network but loopback.
pub fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: the kernel only chooses a source.
    socket.connect("198.51.100.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

/// A kubelet that is running.
pub struct Kubelet {
    process: Process,
    pub port: u16,
}

impl Kubelet {
    /// What it has printed: a line for each request.
    pub fn log(&self) -> String {
        self.process.log_since(0)
    }
}

impl NodeNetwork {
    pub const NODE: &'static str = "node-1";
    pub const NODE_ADDRESS: &'static str = "192.0.2.1";
    /// Its certificate is good for this one as well.
    pub const OTHER_ADDRESS: &'static str = "192.0.2.60";

    pub fn start() -> Self {
        Self::with(&[])
    }

    /// With additional flags.
    pub fn with(flags: &[&str]) -> Self {
        Self::by(&Way::ConnectUnix, flags)
    }

    /// The same by another way.
    pub fn by(way: &Way, flags: &[&str]) -> Self {
        let cleanup = Arc::new(ProcessCleanup::new());
        let home = directory(cleanup.directory(), "nodes");
        let authority = Authority::new("kubelets");
        let address = match way {
            Way::Direct(address) => address.to_string(),
            _ => Self::NODE_ADDRESS.to_owned(),
        };
        let kubelet = kubelet(&home, &authority, &address, &cleanup);
        let (proxy, node_port) = match way {
            Way::ConnectUnix => (Proxy::Connect(ConnectProxy::start(&home.join("s"))), 10250),
            Way::ConnectTls => (Proxy::Connect(ConnectProxy::start_with_tls(&home)), 10250),
            Way::Konnectivity => {
                (Proxy::Konnectivity(KonnectivityServer::start(&home.join("k"))), 10250)
            }
            Way::Direct(address) => {
                let (port, relay) = relay(*address, kubelet.port);
                (Proxy::Direct(relay), port)
            }
        };
        let selection = match &proxy {
            Proxy::Connect(proxy) => Some(proxy.selection("cluster")),
            Proxy::Konnectivity(proxy) => Some(proxy.selection("cluster")),
            Proxy::Direct(_) => None,
        };
        let path = |name: &str| home.join(name).display().to_string();
        let mut own = vec![
            format!("--kubelet-certificate-authority={}", path("ca.crt")),
            format!("--kubelet-client-certificate={}", path("client.crt")),
            format!("--kubelet-client-key={}", path("client.key")),
            "--kubelet-preferred-address-types=InternalIP,Hostname".to_owned(),
        ];
        if let Some(selection) = selection {
            let config = path("egress.yaml");
            fs::write(&config, ConnectProxy::configuration(&[selection])).expect("a file");
            own.push(format!("--egress-selector-config-file={config}"));
        }
        let all: Vec<&str> = own.iter().map(String::as_str).chain(flags.iter().copied()).collect();
        let server = Server::with(Flavour::from_env(), &all);
        let network = Self { server, kubelet, authority, proxy, _cleanup: cleanup };
        network.route(&format!("{address}:10250"), network.kubelet.port);
        let port = json!({"daemonEndpoints": {"kubeletEndpoint": {"Port": node_port}}});
        network.add_node(Self::NODE, &address, &port);
        network
    }

    /// Connections to this address and port go to a port on loopback.
    pub fn route(&self, address: &str, port: u16) {
        match &self.proxy {
            Proxy::Connect(proxy) => proxy.route(address, port),
            Proxy::Konnectivity(proxy) => proxy.route(address, port),
            Proxy::Direct(_) => {}
        }
    }

    /// What the egress proxy was asked for.
    pub fn targets(&self) -> Vec<String> {
        match &self.proxy {
            Proxy::Connect(proxy) => proxy.targets(),
            Proxy::Konnectivity(proxy) => proxy.targets(),
            Proxy::Direct(_) => Vec::new(),
        }
    }

    /// A node with this address; `status` has what else its status says.
    pub fn add_node(&self, name: &str, address: &str, status: &serde_json::Value) {
        let http = self.server.http();
        let path = format!("/api/v1/nodes/{name}");
        http.post("/api/v1/nodes", &json!({"metadata": {"name": name}})).expect(201);
        self.set_node_status(name, address, status);
        assert_eq!(http.get(&path).code, 200);
    }

    pub fn set_node_status(&self, name: &str, address: &str, status: &serde_json::Value) {
        let mut status = status.clone();
        let kind =
            if address.parse::<std::net::IpAddr>().is_ok() { "InternalIP" } else { "Hostname" };
        status["addresses"] = json!([{"type": kind, "address": address}]);
        let patch = json!({"status": status});
        let path = format!("/api/v1/nodes/{name}/status");
        let http = self.server.http();
        http.patch(&path, "application/merge-patch+json", &patch).expect(200);
    }

    /// A node whose kubelet answers every request with the same bytes and then listens.
    pub fn add_crafted_node(&self, name: &str, address: &str, answer: Vec<u8>) -> CraftedKubelet {
        self.add_crafted_node_that(name, address, answer, Then::Listen)
    }

    /// The same, with what it does after its answer.
    pub fn add_crafted_node_that(
        &self,
        name: &str,
        address: &str,
        answer: Vec<u8>,
        then: Then,
    ) -> CraftedKubelet {
        let kubelet = CraftedKubelet::start(&self.authority, address, answer, then);
        self.route(&format!("{address}:10250"), kubelet.port);
        self.add_node(name, address, &json!({}));
        kubelet
    }

    /// A certificate for the address of a node.
    pub fn serving_pair(&self, address: &str) -> Pair {
        self.authority.server(&[address])
    }

    /// A node whose kubelet is what listens on a port of loopback.
    pub fn add_node_at(&self, name: &str, address: &str, port: u16) {
        self.route(&format!("{address}:10250"), port);
        self.add_node(name, address, &json!({}));
    }

    /// A namespace with pod `web` on the node, with these containers.
    pub fn namespace_with_pod(&self, purpose: &str, containers: &[&str]) -> String {
        let namespace = self.server.namespace(purpose);
        self.add_pod(&namespace, "web", Self::NODE, containers);
        namespace
    }

    pub fn add_pod(&self, namespace: &str, name: &str, node: &str, containers: &[&str]) {
        let containers: Vec<_> =
            containers.iter().map(|name| json!({"name": name, "image": "i"})).collect();
        let mut pod = json!({"metadata": {"name": name}, "spec": {
            "containers": containers,
            "automountServiceAccountToken": false,
        }});
        if !node.is_empty() {
            pod["spec"]["nodeName"] = json!(node);
        }
        let http = self.server.http();
        let core = format!("/api/v1/namespaces/{namespace}");
        crate::eventually("the service account is there", || {
            (http.get(&format!("{core}/serviceaccounts/default")).code == 200).then_some(())
        });
        http.post(&format!("{core}/pods"), &pod).expect(201);
        // kubectl waits for a pod to run before it attaches or forwards.
        let status: Vec<_> = pod["spec"]["containers"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| {
                json!({"name": one["name"], "image": "i", "imageID": "i", "ready": true,
                    "restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}})
            })
            .collect();
        let patch = json!({"status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": status,
        }});
        let path = format!("{core}/pods/{name}/status");
        http.patch(&path, "application/merge-patch+json", &patch).expect(200);
    }
}

/// A server at an address of this machine that answers like a kubelet, with a certificate of an unknown authority.
pub fn stranger(address: IpAddr) -> CraftedKubelet {
    let authority = Authority::new("strangers");
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_vec();
    CraftedKubelet::at(&authority, address, &address.to_string(), answer, Then::Listen)
}

/// What a crafted kubelet does after its answer.
pub enum Then {
    Listen,
    Close,
    /// Sends these bytes again and again.
    Repeat(Vec<u8>),
}

/// A kubelet that does not play by the rules.
pub struct CraftedKubelet {
    port: u16,
    asked: Arc<AtomicUsize>,
    received: Arc<Mutex<Vec<String>>>,
    serving: AbortHandle,
}

impl CraftedKubelet {
    fn start(authority: &Authority, address: &str, answer: Vec<u8>, then: Then) -> Self {
        Self::at(authority, [127, 0, 0, 1].into(), address, answer, then)
    }

    /// It listens at one address, and is known by another.
    fn at(authority: &Authority, at: IpAddr, address: &str, answer: Vec<u8>, then: Then) -> Self {
        let pair = authority.server(&[address]);
        let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes());
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider knows TLS")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.expect("PEM")], key.expect("PEM"))
            .expect("key and certificate belong together");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let received = Arc::new(Mutex::new(Vec::new()));
        let heard = received.clone();
        let asked = Arc::new(AtomicUsize::new(0));
        let seen = asked.clone();
        let answer = Arc::new((answer, then));
        let listener = std::net::TcpListener::bind((at, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("sockets can be non-blocking");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let serving = runtime().spawn(async move {
            let listener = TcpListener::from_std(listener).expect("the runtime takes the socket");
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, heard, seen) = (acceptor.clone(), heard.clone(), seen.clone());
                let answer = answer.clone();
                tokio::spawn(async move {
                    let mut tls = acceptor.accept(tcp).await?;
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") && head.len() < 65536 {
                        head.push(tls.read_u8().await?);
                    }
                    seen.fetch_add(1, Ordering::SeqCst);
                    let (answer, then) = &*answer;
                    tls.write_all(answer).await?;
                    tls.flush().await?;
                    match then {
                        Then::Listen => {}
                        Then::Close => return tls.shutdown().await,
                        Then::Repeat(bytes) => loop {
                            tls.write_all(bytes).await?;
                        },
                    }
                    let mut rest = Vec::new();
                    let _ = tls.read_to_end(&mut rest).await;
                    let rest = String::from_utf8_lossy(&rest).into_owned();
                    heard.lock().expect("no panics").push(rest);
                    std::io::Result::Ok(())
                });
            }
        });
        Self { port, asked, received, serving: serving.abort_handle() }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many requests it has got so far.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// What came after the head of each request, on connections that have ended.
    pub fn received(&self) -> Vec<String> {
        self.received.lock().expect("no panics").clone()
    }
}

impl Drop for CraftedKubelet {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Drop for NodeNetwork {
    fn drop(&mut self) {
        if let Proxy::Direct(relay) = &self.proxy {
            relay.abort();
        }
    }
}

/// A port at an address of this machine that leads to one on loopback.
fn relay(address: IpAddr, to: u16) -> (u16, AbortHandle) {
    let listener = std::net::TcpListener::bind((address, 0)).expect("a free port");
    listener.set_nonblocking(true).expect("sockets can be non-blocking");
    let port = listener.local_addr().expect("a bound socket has an address").port();
    let relay = runtime().spawn(async move {
        let listener = TcpListener::from_std(listener).expect("the runtime takes the socket");
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut kubelet = TcpStream::connect(("127.0.0.1", to)).await?;
                copy_bidirectional(&mut client, &mut kubelet).await
            });
        }
    });
    (port, relay.abort_handle())
}

fn kubelet(
    home: &Path,
    authority: &Authority,
    address: &str,
    cleanup: &Arc<ProcessCleanup>,
) -> Kubelet {
    fs::write(home.join("ca.crt"), &authority.pem).expect("a file");
    authority.server(&[address, NodeNetwork::OTHER_ADDRESS]).write(home, "server");
    authority.client("kube-apiserver-kubelet-client", &["system:masters"]).write(home, "client");
    let mut command = Command::new(programs::tool("kubelet"));
    for (flag, file) in [("cert", "server.crt"), ("key", "server.key"), ("client-ca", "ca.crt")] {
        command.arg(format!("--{flag}={}", home.join(file).display()));
    }
    let process = Process::start("kubelet", command, cleanup);
    let port = process.wait_for_line(|line| line.rsplit_once(':')?.1.parse().ok());
    Kubelet { process, port }
}
