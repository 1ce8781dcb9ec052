//! One file each.

pub mod namespace_lifecycle;
