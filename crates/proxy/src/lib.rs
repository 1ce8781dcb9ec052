//! The reverse proxy to aggregated API servers, kubelets, pods and services: kube-apiserver's
//! `UpgradeAwareHandler`.
//!
//! [`forward()`] sends a request on with its body unread and gives back the response with its body
//! unread; neither is ever held in memory beyond a chunk. An upgrade (WebSocket, SPDY) becomes two
//! connections that are copied into each other, and only after the backend has agreed to it.
//!
//! The backend is not trusted: its headers are bounded by the client's limits, it can neither redirect
//! the client ([`Redirects`]) nor keep a connection that the next request would use (upgrades have one
//! of their own). Nor is the client: its hop-by-hop and `X-Forwarded-*` headers go no further, and they
//! go before the caller's own headers are set, so that a client cannot name those in `Connection`.

mod error;
mod forward;
mod headers;
mod request_body;
mod tunnel;
mod upgrade;

pub use self::{
    error::Error,
    forward::{Options, Redirects, Target, forward},
    tunnel::RateLimit,
    upgrade::is_upgrade,
};
