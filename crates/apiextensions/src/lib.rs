//! The end of the chain: CustomResourceDefinitions and the objects they define. What it can't serve
//! is a 404.
//!
//! `definition` holds the rules of definitions themselves. `crd_controller` is the loop; what it decides is in
//! `naming`, `approval`, `establishing` and `finalizing`. `kinds` makes of a definition what the engine
//! serves, with the help of `types`, `shape`, `objects`, `columns` and `webhook`.

mod api_approval_controller;
mod columns;
mod conditions;
mod crd;
mod crd_controller;
mod custom_resource_strategy;
pub mod definition;
mod establishing_controller;
pub mod finalizing_controller;
pub mod jsonpath;
mod naming_controller;
mod prune_and_default;
mod served_definition;
mod types;
mod webhook;

pub use crd_controller::{CrdController, CrdEventHandler, Options};

/// The group whose resources this server serves itself.
pub const GROUP: &str = "apiextensions.k8s.io";
