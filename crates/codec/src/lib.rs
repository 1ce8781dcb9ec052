//! Bytes to trees and back: JSON, YAML, protobuf and CBOR as Kubernetes speaks them, driven by the schema;
//! and what the read path needs to hand out stored bytes without decoding them, also compressed.
//!
//! Nothing here does I/O or knows async.

pub mod base64;
pub mod cbor;
pub mod config_file;
mod growing;
#[cfg(test)]
mod growth_tests;
pub mod gzip;
pub mod json;
pub mod negotiate;
pub mod protobuf;
pub mod raw_object;
pub mod status;
#[cfg(test)]
mod testing;
pub mod yaml;
