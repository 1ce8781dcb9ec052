//! The four ways to change part of an object: JSON patch, merge patch, strategic merge patch and
//! server-side apply. Each takes an object and a patch and returns the new object.
//!
//! Nothing here does I/O or knows async.

pub mod apply;
mod error;
pub mod go_text;
pub mod json_patch;
mod json_text;
mod map_edit;
pub mod merge;
#[cfg(test)]
mod raw_tests;
pub mod strategic;

pub use error::PatchError;
