//! From the socket to the handler: TLS, HTTP/1.1 and HTTP/2, the chain of filters that every
//! request walks through, and the server's life from start to stop.

pub mod audit;
pub mod body;
pub mod chain;
pub mod connection;
pub mod context;
pub mod cpu_pool;
pub mod debug_socket;
pub mod delegate;
pub mod descriptors;
mod filters;
pub mod generic;
pub mod gzip;
pub mod health;
pub mod lifecycle;
pub mod listener;
pub mod logs;
pub mod metrics;
mod pem;
pub mod pki;
mod profile;
mod request_log;
pub mod storage_versions;
mod take_over;
pub mod tls;
pub mod websocket;
pub mod zpages;

pub use self::audit::RequestAudit;
pub use body::{Body, BoxError, ChunkSource};
pub use chain::{Chain, Server};
pub use context::Context;
pub use cpu_pool::CpuPool;
pub use delegate::{Claims, Delegate, Delegates, PeerProxy, Serving};
pub use filters::cors::Cors;
pub use filters::seats::{FlowControl, MaxInFlight};
pub use pem::{Pem, UnwrittenFile};
pub use storage_versions::StorageVersions;
