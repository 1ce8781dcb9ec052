//! The group `apps`.

pub(crate) mod controller_revision;
pub(crate) mod daemon_set;
pub(crate) mod deployment;
pub(crate) mod replica_set;
pub(crate) mod stateful_set;

/// Where the controllers of this group keep the containers that they run.
const CONTAINERS: &[&str] = &["spec", "template", "spec", "containers"];
