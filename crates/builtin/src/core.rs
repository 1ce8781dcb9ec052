//! The core group.

pub(crate) mod namespace;
pub(crate) mod pod;
