//! From a configuration to ways of dialing.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use client::{BoxFuture, Dial, DialError, Identity, Pem, Stream, TcpDial, Tls, TlsStreams, Trust};
use prometheus::Registry;
use tokio::net::UnixStream;

use crate::{
    config::{self, ConfigError, Connection, TlsFiles},
    http_connect, konnectivity,
    metrics::{Metrics, Stage},
};

/// What connections are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EgressType {
    /// Webhooks by URL, OpenID issuers, audit sinks.
    ControlPlane,
    Etcd,
    /// Nodes, pods and services.
    Cluster,
}

impl EgressType {
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "controlplane" => Some(Self::ControlPlane),
            "etcd" => Some(Self::Etcd),
            "cluster" => Some(Self::Cluster),
            _ => None,
        }
    }
}

/// The ways that a configuration has; none without one.
#[derive(Clone, Default)]
pub struct EgressSelector {
    proxies: Vec<(EgressType, Arc<ProxyDial>)>,
    /// Those that the configuration names, direct ones included.
    named: Vec<EgressType>,
    metrics: Option<Metrics>,
}

impl EgressSelector {
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        let metrics = Metrics::new();
        let (mut proxies, mut named) = (Vec::new(), Vec::new());
        for selection in config::read(file)? {
            named.push(selection.egress);
            if let Some(proxy) = Proxy::new(selection.connection)? {
                let dial = ProxyDial { proxy, metrics: metrics.clone() };
                proxies.push((selection.egress, Arc::new(dial)));
            }
        }
        Ok(Self { proxies, named, metrics: Some(metrics) })
    }

    /// The proxy for these connections. None: they are direct.
    pub fn proxy(&self, egress: EgressType) -> Option<Arc<dyn Dial>> {
        let (_, dial) = self.proxies.iter().find(|(of, _)| *of == egress)?;
        Some(dial.clone())
    }

    /// The way that the configuration names for these connections, a direct one included.
    pub fn named(&self, egress: EgressType) -> Option<Arc<dyn Dial>> {
        if !self.named.contains(&egress) {
            return None;
        }
        Some(self.proxy(egress).unwrap_or_else(|| Arc::new(TcpDial::default())))
    }

    /// Whether there is a configuration.
    pub fn is_configured(&self) -> bool {
        self.metrics.is_some()
    }

    pub fn register_metrics(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        self.metrics.as_ref().map_or(Ok(()), |metrics| metrics.register(registry))
    }
}

enum Proxy {
    HttpConnectUds(PathBuf),
    HttpConnectTcp { host: String, port: u16, tls: TlsStreams, server_name: String },
    GrpcUds(PathBuf),
}

impl Proxy {
    /// None: no proxy at all.
    fn new(connection: Connection) -> Result<Option<Self>, ConfigError> {
        Ok(Some(match connection {
            Connection::Direct => return Ok(None),
            Connection::HttpConnectUds(path) => Self::HttpConnectUds(path),
            Connection::GrpcUds(path) => Self::GrpcUds(path),
            Connection::HttpConnectTcp { host, port, tls } => {
                let server_name = tls.server_name.clone().unwrap_or_else(|| host.clone());
                let tls = TlsStreams::new(trust(tls));
                let tls = tls.map_err(|error| ConfigError(error.to_string()))?;
                Self::HttpConnectTcp { host, port, tls, server_name }
            }
        }))
    }

    /// As metrics name it: protocol and transport.
    fn labels(&self) -> [&'static str; 2] {
        match self {
            Self::HttpConnectUds(_) => ["http_connect", "uds"],
            Self::HttpConnectTcp { .. } => ["http_connect", "tcp"],
            Self::GrpcUds(_) => ["grpc", "uds"],
        }
    }
}

fn trust(files: TlsFiles) -> Tls {
    Tls {
        trust: files.ca_bundle.map_or(Trust::System, Trust::File),
        server_name: files.server_name,
        identity: Some(Identity {
            certificate: Pem::File(files.client_cert),
            key: Pem::File(files.client_key),
        }),
        ..Tls::default()
    }
}

/// Dials through a proxy, and counts.
struct ProxyDial {
    proxy: Proxy,
    metrics: Metrics,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Dial for ProxyDial {
    fn dial<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, Result<Box<dyn Stream>, DialError>> {
        Box::pin(async move {
            let labels = self.proxy.labels();
            self.metrics.started(labels);
            let began = Instant::now();
            let dialed = self.proxy.dial(host, port).await;
            match dialed {
                Ok(stream) => {
                    self.metrics.succeeded(labels, began.elapsed());
                    Ok(stream)
                }
                Err((stage, source)) => {
                    self.metrics.failed(labels, stage);
                    Err(DialError::Other { host: host.to_owned(), port, source })
                }
            }
        })
    }
}

impl Proxy {
    async fn dial(&self, host: &str, port: u16) -> Result<Box<dyn Stream>, (Stage, BoxError)> {
        let (stream, proxy): (Box<dyn Stream>, String) = match self {
            Self::HttpConnectUds(path) => {
                let stream = UnixStream::connect(path).await;
                let stream = stream.map_err(|error| {
                    let error = format!("dial unix {}: {error}", path.display());
                    (Stage::Connect, error.into())
                })?;
                (Box::new(stream), path.display().to_string())
            }
            Self::HttpConnectTcp { host, port, tls, server_name } => {
                let tcp = TcpDial::default().dial(host, *port).await;
                let tcp = tcp.map_err(|error| (Stage::Connect, error.into()))?;
                let stream = tls.connect(server_name, tcp).await;
                let stream = stream.map_err(|error| (Stage::Connect, error.into()))?;
                (stream, join_host_port(host, *port))
            }
            Self::GrpcUds(path) => {
                let channel = konnectivity::connect(path).await;
                let channel = channel.map_err(|error| (Stage::Connect, error.into()))?;
                let stream = konnectivity::dial(channel, host, port).await;
                return stream.map_err(|error| (Stage::Proxy, error.into()));
            }
        };
        let stream = http_connect::connect(stream, &proxy, host, port).await;
        stream.map_err(|error| (Stage::Proxy, error.into()))
    }
}

/// IPv6 addresses get brackets.
pub(crate) fn join_host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
