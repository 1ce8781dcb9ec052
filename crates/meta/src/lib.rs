//! Types shared by all crates: the JSON tree, group/version/kind, selectors, quantities, times,
//! field paths with their collected errors, and the errors that become a `Status`.
//!
//! Nothing here does I/O or knows async: value in, value out.

pub mod audit;
pub mod authorization;
pub mod cancel;
pub mod error;
pub mod field;
#[doc(hidden)]
pub mod growth;
pub mod gvk;
pub mod json;
pub mod jsonpath;
pub mod limits;
pub mod names;
pub mod quantity;
pub mod query;
mod raw_json;
pub mod request;
pub mod selector;
pub mod time;
pub mod value;
mod version_order;

use std::pin::Pin;

pub use audit::{AuditAnnotations, AuditLevel, AuditRecord, LatencyLayer};
pub use error::{ApiError, Cause, Details, ListMeta, Status};
pub use field::{FieldError, FieldErrors, FieldPath};
pub use gvk::{GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource};
pub use query::Query;
pub use raw_json::RawJson;
pub use request::{RequestInfo, User, Warnings};
pub use value::{Map, Number, Str, Value};
pub use version_order::compare_versions;

/// What an asynchronous method of a trait object returns.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
