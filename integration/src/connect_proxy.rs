//! An egress proxy: HTTP CONNECT on a unix socket, or over TLS on a port.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use crate::certificates::Authority;
use crate::http::runtime;
use crate::routes::Routes;

/// It connects until it is dropped.
pub struct ConnectProxy {
    /// The transport of an egress selection that leads here.
    transport: Value,
    routes: Routes,
    server: AbortHandle,
}

impl ConnectProxy {
    /// On a unix socket.
    pub fn start(socket: &Path) -> Self {
        let routes = Routes::default();
        let known = routes.clone();
        let _runtime = runtime().enter();
        let listener = UnixListener::bind(socket).expect("a free socket");
        let serving = runtime().spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, known.clone()));
            }
        });
        let transport = json!({"uds": {"udsName": socket}});
        Self { transport, routes, server: serving.abort_handle() }
    }

    /// On a port, for clients with a certificate. Its files are in `home`.
    pub fn start_with_tls(home: &Path) -> Self {
        let authority = Authority::new("egress-proxy");
        let ca = home.join("proxy-ca.crt");
        std::fs::write(&ca, &authority.pem).expect("a file");
        let client = authority.client("kube-apiserver", &[]).write(home, "proxy-client");
        let acceptor = acceptor(&authority);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("sockets can be non-blocking");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let routes = Routes::default();
        let known = routes.clone();
        let serving = runtime().spawn(async move {
            let listener = TcpListener::from_std(listener).expect("the runtime takes the socket");
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, known) = (acceptor.clone(), known.clone());
                tokio::spawn(async move { connect(acceptor.accept(tcp).await?, known).await });
            }
        });
        let transport = json!({"tcp": {
            "url": format!("https://127.0.0.1:{port}"),
            "tlsConfig": {"caBundle": ca, "clientCert": client[0], "clientKey": client[1]},
        }});
        Self { transport, routes, server: serving.abort_handle() }
    }

    /// Connections to this address and port go to a port on loopback; all others are refused.
    pub fn route(&self, address: &str, port: u16) {
        self.routes.add(address, port);
    }

    /// The addresses and ports that it was asked for.
    pub fn targets(&self) -> Vec<String> {
        self.routes.targets()
    }

    /// An entry of an `EgressSelectorConfiguration` that leads here.
    pub fn selection(&self, name: &str) -> Value {
        json!({"name": name, "connection": {
            "proxyProtocol": "HTTPConnect",
            "transport": self.transport,
        }})
    }

    /// A whole configuration.
    pub fn configuration(selections: &[Value]) -> String {
        json!({
            "apiVersion": "apiserver.k8s.io/v1beta1",
            "kind": "EgressSelectorConfiguration",
            "egressSelections": selections,
        })
        .to_string()
    }
}

impl Drop for ConnectProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Asks clients for a certificate of the authority.
fn acceptor(authority: &Authority) -> TlsAcceptor {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(authority.pem.as_bytes()).expect("PEM");
    roots.add(ca).expect("a CA");
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
    let pair = authority.server(&["127.0.0.1"]);
    let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("PEM");
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider knows TLS")
        .with_client_cert_verifier(verifier.expect("there is a root"))
        .with_single_cert(vec![certificate], key)
        .expect("key and certificate belong together");
    TlsAcceptor::from(Arc::new(config))
}

async fn connect(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    routes: Routes,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < 4096 {
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next());
    let Some(port) = target.and_then(|target| routes.find(target)) else {
        return client.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n").await;
    };
    let mut backend = TcpStream::connect(("127.0.0.1", port)).await?;
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    copy_bidirectional(&mut client, &mut backend).await.map(drop)
}
