//! The types of API objects: fields, node types and what the generic registry has to know about
//! each field. Built-in kinds load their types from the definition files, custom resources from
//! their CRD; all other code treats them alike.
//!
//! Nothing here does I/O or knows async.

pub mod cel_decl;
mod default;
mod field_index;
pub mod openapi;
mod resource;
pub mod structural;
mod types;

pub use default::{Defaults, drop_nulls};
pub use resource::*;
pub use types::*;
