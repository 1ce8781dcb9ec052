//! Label selectors and field selectors: parsed once per request, matched against every object.

mod field;
mod key_index;
mod label;
mod parse;

pub use field::{FieldRequirement, FieldSelector};
pub use label::{LabelSelector, Operator, Requirement};
