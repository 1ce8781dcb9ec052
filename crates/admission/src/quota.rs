//! ResourceQuota: how much of each resource the objects of a namespace may use.
//!
//! `evaluator.rs` is what a kind says about its use of resources, `check.rs` decides about one request,
//! `plugin.rs` decides about the requests of a namespace together and writes the quotas' status, `pending.rs`
//! knows what was charged and is not stored yet.

mod check;
mod configuration;
mod evaluator;
mod pending;
mod plugin;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use evaluator::{
    Evaluator, Evaluators, ObjectCount, ResourceList, Scope, add, object_count_name, total_usage,
};
pub use pending::{CHARGE_SETTLED_AFTER, PendingCharges, WriteCharges};
pub use plugin::{QuotaAccessor, ResourceQuota};
