//! JSON, read and written as Go's `encoding/json` would with Kubernetes' types.
//!
//! A decoded tree is canonical: what a Go struct would forget or rewrite (unknown fields, the
//! spelling of a quantity or a time) is gone after decoding, so that encoding and decoding again
//! changes nothing.

mod canonical;
mod decode;
mod edit;
mod encode;
mod error;
mod go_type;
mod indent;
mod leaf;
pub(crate) mod lexer;
#[cfg(test)]
mod tests;

pub use canonical::to_canonical;
pub(crate) use decode::decode_any_up_to;
pub use decode::{
    DecodeOptions, Decoded, decode, decode_any, decode_any_body, decode_any_within, decode_body,
    list_strict_errors,
};
pub use edit::{Edit, compact, edit, sort_members_of_items};
pub use encode::{encode, encode_any, encode_node, normalize, remove_empty_fields};
pub use error::{DecodeError, Found, GoKind, GoType, Step, StrictError, TypeError};
pub use indent::indent;
pub use lexer::quote_byte;

/// Deeper nesting is a syntax error, as in Go.
pub const DEPTH_MAX: usize = 10_000;

/// Deeper nesting is rejected in values that are kept, with the same message. Go has no such second
/// limit.
pub use meta::limits::TREE_DEPTH_MAX;
