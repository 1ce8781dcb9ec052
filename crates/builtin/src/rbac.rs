//! The group `rbac.authorization.k8s.io`. Roles have the default columns: name
//! and creation time.

pub(crate) mod binding;
pub(crate) mod escalation;
pub(crate) mod role;
