//! The end of the chain: CustomResourceDefinitions and the objects they define. What it can't serve
//! is a 404.
//!
//! `definition` holds the rules of definitions themselves. `keeper` is the loop; what it decides is in
//! `naming`, `approval`, `establishing` and `finalizing`. `kinds` makes of a definition what the engine
//! serves, with the help of `types`, `shape`, `objects`, `columns` and `webhook`.

mod approval;
mod columns;
mod conditions;
mod crd;
pub mod definition;
mod establishing;
pub mod finalizing;
pub mod jsonpath;
mod keeper;
mod kinds;
mod naming;
mod objects;
mod shape;
mod types;
mod webhook;

pub use keeper::{Keeper, Listener, Options};

/// The group whose resources this server serves itself.
pub const GROUP: &str = "apiextensions.k8s.io";
