//! The end of the chain: CustomResourceDefinitions and, later, the objects they define. What it
//! can't serve is a 404.

/// The group whose resources this server serves itself.
pub const GROUP: &str = "apiextensions.k8s.io";
