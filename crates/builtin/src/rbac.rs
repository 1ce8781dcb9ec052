//! The group `rbac.authorization.k8s.io`. Roles show a name and a date, as kinds do that nobody wrote
//! columns for.

pub(crate) mod binding;
pub(crate) mod escalation;
pub(crate) mod role;
