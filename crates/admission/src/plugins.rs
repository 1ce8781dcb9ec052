//! One file each.

pub mod namespace_lifecycle;
pub mod node_restriction;
pub mod service_account;
