//! The ways through the API server to nodes, pods and Services: `pods/log`, `pods/exec`, `pods/attach`,
//! `pods/portforward`, and the proxies of pods, Services and nodes; and the client of kubelets that they
//! share.
//!
//! What a request names is looked up, checked ([`allowed_address`]) and turned into a URL; then the
//! connection is passed on (`proxy`), translated (`translator`) or tunneled (`tunnel`).

pub mod allowed_address;
mod container;
mod errors;
mod kubelet;
mod log;
mod message_stream;
mod metrics;
mod options;
mod proxies;
mod rewrite;
mod shared;
mod streaming;
mod translator;
mod tunnel;

use std::{
    num::NonZeroU64,
    sync::{Arc, OnceLock},
};

use client::{Client, Config, Dial, Limits, TcpDial, Tls, Trust};
use endpoints::{Connecters, LoopbackClient};
use meta::{GroupResource, authorization::Authorizer};

use self::{
    allowed_address::{AllowedDial, SystemResolver, Way},
    kubelet::Kubelets,
    log::Log,
    proxies::{Proxy, Resource},
    shared::Shared,
    streaming::{Streaming, Subresource},
};

pub use self::{allowed_address::OwnPort, kubelet::KubeletConfig, metrics::Metrics, shared::Gates};

/// Everything that the subresources need, given once.
pub struct Options {
    pub kubelets: KubeletConfig,
    /// The egress proxy for the cluster. None: connections are direct.
    pub egress: Option<Arc<dyn Dial>>,
    pub own_port: OwnPort,
    pub authorizer: Arc<dyn Authorizer>,
    /// Set once the servers are put together.
    pub local: Arc<OnceLock<LoopbackClient>>,
    pub gates: Gates,
    /// `--max-connection-bytes-per-sec`.
    pub bytes_per_second_max: Option<NonZeroU64>,
    pub metrics: Metrics,
}

/// The CONNECT subresources of the core group.
pub fn connecters(options: Options) -> Result<Connecters, client::ConfigError> {
    let way = match options.egress {
        Some(proxy) => Way::Proxy(proxy),
        None => {
            let connect_timeout = options.kubelets.timeout;
            Way::Direct(Arc::new(TcpDial { connect_timeout }))
        }
    };
    let resolver = Arc::new(SystemResolver);
    let dial = Arc::new(AllowedDial { way, resolver, own_port: options.own_port });
    let pods = Client::new(Config {
        tls: Tls { trust: Trust::Insecure, ..Tls::default() },
        dial: dial.clone() as Arc<dyn Dial>,
        limits: Limits::for_proxy(),
        ..Config::default()
    })?;
    let shared = Arc::new(Shared {
        local: options.local,
        authorizer: options.authorizer,
        kubelets: Kubelets::new(options.kubelets, &dial)?,
        pods,
        dial,
        gates: options.gates,
        bytes_per_second_max: options.bytes_per_second_max,
        metrics: options.metrics,
    });
    let pods = || GroupResource::new("", "pods");
    let streaming = |subresource| {
        let shared = shared.clone();
        Arc::new(Streaming { shared, subresource })
    };
    let proxy = |resource| Arc::new(Proxy { shared: shared.clone(), resource });
    Ok(Connecters::default()
        .with(pods(), "log", Arc::new(Log(shared.clone())))
        .with(pods(), "exec", streaming(Subresource::Exec))
        .with(pods(), "attach", streaming(Subresource::Attach))
        .with(pods(), "portforward", streaming(Subresource::PortForward))
        .with(pods(), "proxy", proxy(Resource::Pod))
        .with(GroupResource::new("", "services"), "proxy", proxy(Resource::Service))
        .with(GroupResource::new("", "nodes"), "proxy", proxy(Resource::Node)))
}
