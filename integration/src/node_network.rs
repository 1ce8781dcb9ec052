//! A network of nodes and pods that is only in the test: an egress proxy (HTTP CONNECT on a unix socket)
//! which connects documentation addresses (192.0.2.0/24) to listeners on loopback. The server never dials
//! an address itself, so nothing has to be allowed that it refuses otherwise.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use crate::certificates::Authority;
use crate::http::runtime;
use crate::process::{Process, directory};
use crate::process_cleanup::ProcessCleanup;
use crate::programs;
use crate::server::{Flavour, Server};

/// A server with one node, whose kubelet is the stand-in of `tools/kubelet`.
pub struct NodeNetwork {
    pub server: Server,
    pub kubelet: Kubelet,
    authority: Authority,
    routes: Routes,
    proxy: AbortHandle,
    _cleanup: Arc<ProcessCleanup>,
}

/// From an address and a port to a port on loopback.
type Routes = Arc<Mutex<HashMap<String, u16>>>;

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
        let cleanup = Arc::new(ProcessCleanup::new());
        let home = directory(cleanup.directory(), "nodes");
        let authority = Authority::new("kubelets");
        let kubelet = kubelet(&home, &authority, &cleanup);
        let (routes, proxy) = proxy(&home.join("s"));
        let config = home.join("egress.yaml");
        let text = json!({
            "apiVersion": "apiserver.k8s.io/v1beta1",
            "kind": "EgressSelectorConfiguration",
            "egressSelections": [{"name": "cluster", "connection": {
                "proxyProtocol": "HTTPConnect",
                "transport": {"uds": {"udsName": home.join("s")}},
            }}],
        });
        fs::write(&config, text.to_string()).expect("a file");
        let path = |name: &str| home.join(name).display().to_string();
        let own = [
            format!("--egress-selector-config-file={}", config.display()),
            format!("--kubelet-certificate-authority={}", path("ca.crt")),
            format!("--kubelet-client-certificate={}", path("client.crt")),
            format!("--kubelet-client-key={}", path("client.key")),
            "--kubelet-preferred-address-types=InternalIP,Hostname".to_owned(),
        ];
        let all: Vec<&str> = own.iter().map(String::as_str).chain(flags.iter().copied()).collect();
        let server = Server::with(Flavour::from_env(), &all);
        let network = Self { server, kubelet, authority, routes, proxy, _cleanup: cleanup };
        network.route(&format!("{}:10250", Self::NODE_ADDRESS), network.kubelet.port);
        network.add_node(Self::NODE, Self::NODE_ADDRESS, &json!({}));
        network
    }

    /// Connections to this address and port go to a port on loopback.
    pub fn route(&self, address: &str, port: u16) {
        self.routes.lock().expect("no panics").insert(address.to_owned(), port);
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
        let kubelet = CraftedKubelet::start(&self.authority, address, answer);
        self.route(&format!("{address}:10250"), kubelet.port);
        self.add_node(name, address, &json!({}));
        kubelet
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

impl Drop for NodeNetwork {
    fn drop(&mut self) {
        self.proxy.abort();
    }
}

/// A kubelet that does not play by the rules.
pub struct CraftedKubelet {
    port: u16,
    received: Arc<Mutex<Vec<String>>>,
    serving: AbortHandle,
}

impl CraftedKubelet {
    fn start(authority: &Authority, address: &str, answer: Vec<u8>) -> Self {
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
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("sockets can be non-blocking");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let serving = runtime().spawn(async move {
            let listener = TcpListener::from_std(listener).expect("the runtime takes the socket");
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, heard) = (acceptor.clone(), heard.clone());
                let answer = answer.clone();
                tokio::spawn(async move {
                    let mut tls = acceptor.accept(tcp).await?;
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") && head.len() < 65536 {
                        head.push(tls.read_u8().await?);
                    }
                    tls.write_all(&answer).await?;
                    tls.flush().await?;
                    let mut rest = Vec::new();
                    let _ = tls.read_to_end(&mut rest).await;
                    let rest = String::from_utf8_lossy(&rest).into_owned();
                    heard.lock().expect("no panics").push(rest);
                    std::io::Result::Ok(())
                });
            }
        });
        Self { port, received, serving: serving.abort_handle() }
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

fn kubelet(home: &Path, authority: &Authority, cleanup: &Arc<ProcessCleanup>) -> Kubelet {
    fs::write(home.join("ca.crt"), &authority.pem).expect("a file");
    authority
        .server(&[NodeNetwork::NODE_ADDRESS, NodeNetwork::OTHER_ADDRESS])
        .write(home, "server");
    authority.client("kube-apiserver-kubelet-client", &["system:masters"]).write(home, "client");
    let mut command = Command::new(programs::tool("kubelet"));
    for (flag, file) in [("cert", "server.crt"), ("key", "server.key"), ("client-ca", "ca.crt")] {
        command.arg(format!("--{flag}={}", home.join(file).display()));
    }
    let process = Process::start("kubelet", command, cleanup);
    let port = process.wait_for_line(|line| line.rsplit_once(':')?.1.parse().ok());
    Kubelet { process, port }
}

/// The proxy on a socket, and what it knows.
fn proxy(socket: &Path) -> (Routes, AbortHandle) {
    let routes = Routes::default();
    let known = routes.clone();
    let socket: PathBuf = socket.to_owned();
    let _runtime = runtime().enter();
    let listener = UnixListener::bind(socket).expect("a free socket");
    let serving = runtime().spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(connect(client, known.clone()));
        }
    });
    (routes, serving.abort_handle())
}

async fn connect(mut client: UnixStream, routes: Routes) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < 4096 {
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next());
    let port = target.and_then(|target| routes.lock().expect("no panics").get(target).copied());
    let Some(port) = port else {
        return client.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n").await;
    };
    let mut backend = TcpStream::connect(("127.0.0.1", port)).await?;
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    copy_bidirectional(&mut client, &mut backend).await.map(drop)
}
