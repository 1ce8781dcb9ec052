//! The backend that keeps objects in etcd, where kube-apiserver keeps them.
//!
//! Reading order: `client` (members, connections, what is tried retry), `error`, `backend` (the
//! promises of [`store::Backend`]), then its helpers: `revision` (how far is etcd?), `lease` (keys
//! that go by themselves), `watch` and `watch_state` (a watch on its own stream, and its state), `compactor` (who
//! forgets history when several servers share an etcd).
//!
//! A crate of its own and not a module of `store`, because gRPC takes a while to build and nothing
//! above the [`store::Backend`] seam needs it.

mod backend;
mod client;
mod compactor;
mod error;
mod lease;
mod options;
mod revision;
mod watch;
mod watch_state;

pub use backend::{CompactionState, Etcd};
pub use client::Status;
pub use options::{Options, Tls};

/// The messages of `proto/etcd.proto`.
#[allow(clippy::all, clippy::pedantic, unreachable_pub)]
mod pb {
    include!(concat!(env!("OUT_DIR"), "/etcdserverpb.rs"));
}
