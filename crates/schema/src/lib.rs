//! What an object may look like: its fields, their types, and what the engine has to know about
//! each of them. Built-in kinds load theirs from the definition files, custom resources from their
//! CRD; from there on nobody can tell them apart.
//!
//! Nothing here does I/O or knows async.

mod default;
mod field_index;
pub mod openapi;
mod resource;
pub mod structural;
mod types;

pub use default::{Defaults, drop_nulls};
pub use resource::*;
pub use types::*;
