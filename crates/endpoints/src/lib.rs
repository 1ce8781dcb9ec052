//! Where HTTP meets the registry: the table of served kinds, and the handler that takes a request
//! for one of them. Built-in and custom kinds are served by the same handler over two tables.

mod handle;
mod loopback_client;
mod server;
mod table;

pub use handle::{Resources, read_body};
pub use loopback_client::{LoopbackClient, Target};
pub use server::ResourceServer;
pub use table::Kinds;
