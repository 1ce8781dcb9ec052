//! Where HTTP meets the registry: the table of served kinds, and the handler that takes a request
//! for one of them. Built-in and custom kinds are served by the same handler over two tables.

mod handle;
mod local;
mod table;

pub use handle::{Resources, read_body};
pub use local::{Local, Target};
pub use table::Kinds;
