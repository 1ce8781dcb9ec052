//! ResourceQuota: how much of each resource the objects of a namespace may use.
//!
//! `evaluator.rs` is what a kind says about its use of resources, `check.rs` decides about one request,
//! `plugin.rs` decides about the requests of a namespace together and writes the quotas' status.

mod check;
mod configuration;
mod evaluator;
mod plugin;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use evaluator::{
    Evaluator, Evaluators, ObjectCount, ResourceList, Scope, add, object_count_name, total_usage,
};
pub use plugin::{QuotaAccessor, ResourceQuota};
