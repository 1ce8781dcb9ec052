//! Options of the etcd backend.

use std::path::PathBuf;
use std::time::Duration;

/// Endpoints of the members, and intervals.
#[derive(Debug, Clone)]
pub struct Options {
    /// `https://host:2379`, one per member. Without a scheme it is `http://`.
    pub servers: Vec<String>,
    pub tls: Tls,
    /// How often this server tries to compact; `None`: never.
    pub compact_every: Option<Duration>,
    /// For how long a lease is shared with further keys, in seconds.
    pub lease_reuse_seconds: u64,
    /// How members are reached, where an egress selector says so. None: directly.
    pub dialer: Option<grpc::Dialer>,
}

impl Options {
    pub fn new(servers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            servers: servers.into_iter().map(Into::into).collect(),
            tls: Tls::default(),
            // Compat: the defaults of kube-apiserver's flags.
            compact_every: Some(Duration::from_mins(5)),
            lease_reuse_seconds: 60,
            dialer: None,
        }
    }
}

/// Paths of PEM files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    pub ca_file: Option<PathBuf>,
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
}
