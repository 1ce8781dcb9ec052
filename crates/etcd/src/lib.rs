//! The etcd backend, byte-compatible with kube-apiserver.
//!
//! Reading order: `client` (members, connections, retries), `error`, `backend` (implements
//! [`store::Backend`]), then its helpers: `revision` (the newest revision, for consistent reads),
//! `lease` (TTLs), `watch` and `watch_state` (a watch on its own stream, and its state),
//! `compactor` (compaction shared by several apiservers).
//!
//! A crate of its own and not a module of `store`, because gRPC takes long to build and nothing
//! above [`store::Backend`] needs it.

mod backend;
mod client;
mod compactor;
mod error;
mod lease;
mod metrics;
mod options;
mod revision;
mod watch;
mod watch_state;

pub use backend::{CompactionState, Etcd};
pub use client::Status;
pub use metrics::register_metrics;
pub use options::{Options, Tls};

/// The messages of `proto/etcd.proto`.
#[allow(clippy::all, clippy::pedantic, unreachable_pub)]
mod pb {
    include!(concat!(env!("OUT_DIR"), "/etcdserverpb.rs"));
}
