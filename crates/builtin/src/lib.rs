//! Every built-in kind: its definition (`api/`, loaded by `definitions`) and what is special about it.

mod definitions;

pub use definitions::Definitions;
