//! kube-apiserver's admission plugins.

pub mod certificates;
pub mod namespace_lifecycle;
pub mod node_restriction;
pub mod service_account;
