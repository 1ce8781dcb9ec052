//! The harness of the integration tests: it starts the real server on a free port with an empty data
//! directory, and provides the clients that users have.
//!
//! The same tests run against three servers, chosen by the environment, so that a test can be shown
//! to be right before Pintle is:
//!
//! | environment | server |
//! |---|---|
//! | nothing | `pintle` with its embedded store |
//! | `PINTLE_BACKEND=etcd` | `pintle` on a real etcd |
//! | `PINTLE_PEER=<path of kube-apiserver>` | the real kube-apiserver on a real etcd |
//!
//! Everything here is blocking, and safe to call from an async test as well: the one client that is
//! async by nature, kube-rs, is made by [`Server::kube`].

pub mod aggregated_server;
mod cert_manager_webhook;
mod certificates;
mod collector;
mod connect_proxy;
mod crafted_server;
mod credentials;
mod etcd;
pub mod eventually;
mod external_signer;
mod grpc_plugin;
pub mod http;
pub mod http2;
mod kms;
mod konnectivity;
pub mod kubectl;
mod metrics_server;
mod node_network;
mod peer;
mod process;
mod process_cleanup;
mod programs;
mod routes;
mod sample_apiserver;
mod server;
mod stand_in_nodes;
mod webhook;
pub mod websocket;

pub use self::aggregated_server::AggregatedServer;
pub use self::cert_manager_webhook::CertManagerWebhook;
pub use self::certificates::{Authority, Pair};
pub use self::collector::{CollectedSpan, Collector};
pub use self::connect_proxy::ConnectProxy;
pub use self::crafted_server::{Behaviour, CraftedServer};
pub use self::etcd::{Etcd, TlsEtcd, etcd_url};
pub use self::eventually::eventually;
pub use self::external_signer::{ExternalSigner, SignerKey, SignerState};
pub use self::http::{Answer, Connection, Http, Protocol, RawConnection, Stream};
pub use self::kms::KmsPlugin;
pub use self::konnectivity::KonnectivityServer;
pub use self::kubectl::{Kubectl, Version};
pub use self::metrics_server::MetricsServer;
pub use self::node_network::{
    CraftedKubelet, Kubelet, NodeNetwork, Then, Way, own_address, stranger,
};
pub use self::programs::{
    cert_manager, envtest, helm, informer, peer as peer_program, pintle as pintle_program,
    pod_security_fixtures, published_definitions,
};
pub use self::sample_apiserver::SampleApiServer;
pub use self::server::{Flavour, Server, Shared, shared};
pub use self::stand_in_nodes::StandInNodes;
pub use self::webhook::{Reply, Webhook};
