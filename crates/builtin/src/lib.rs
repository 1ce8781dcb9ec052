//! The built-in kinds: their definitions (facts, in `api/`), their strategies (one file per kind)
//! and the table of them.

mod apps;
mod autoscaling;
mod batch;
mod behaviour;
mod convert;
mod core;
mod definitions;
mod format;
mod kinds;
mod policy;
mod strategies;

pub use definitions::Definitions;
pub use kinds::{Options, kinds};
