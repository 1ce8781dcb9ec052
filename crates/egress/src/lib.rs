//! The egress selector (`--egress-selector-config-file`): which way connections leave the server, by
//! where they go to: the cluster (nodes, pods, services), the control plane, or etcd.
//!
//! A way is a [`client::Dial`]: direct, an HTTP CONNECT proxy over TCP with TLS or over a unix socket,
//! or a konnectivity server over gRPC on a unix socket. It is a crate of its own because gRPC takes long
//! to build.

mod config;
mod http_connect;
mod konnectivity;
mod metrics;
mod selector;

pub use self::{
    config::ConfigError,
    selector::{EgressSelector, EgressType},
};
