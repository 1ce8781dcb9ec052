//! The built-in kinds: their definitions (facts, in `api/`), their strategies (one file per kind)
//! and the table of them.

mod admissionregistration;
mod apiregistration;
mod apiserverinternal;
mod apps;
mod autoscaling;
mod batch;
mod behaviour;
mod certificates;
mod convert;
mod coordination;
mod core;
mod definitions;
mod discovery;
mod flowcontrol;
mod format;
mod kinds;
mod networking;
mod node;
mod policy;
mod rbac;
mod resource;
mod scheduling;
mod storage;
mod storagemigration;
mod strategies;

pub use definitions::Definitions;
pub use kinds::{Options, kinds};
