//! Where HTTP meets the registry: the table of served kinds, and the handler that takes a request
//! for one of them. Built-in and custom kinds are served by the same handler over two tables.

mod connect;
mod handle;
mod loopback_client;
mod table;

pub use connect::{Connect, Connecter, Connecters};
pub use handle::{Resources, read_body};
pub use loopback_client::{LoopbackClient, ResourceRef};
pub use table::Kinds;
