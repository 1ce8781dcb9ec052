//! YAML as Kubernetes reads and prints it: YAML 1.1 in the dialect of go-yaml 2 (`yes` is true, `010`
//! is eight), by way of JSON.
//!
//! Upstream turns YAML into JSON first and decodes that. So do we: field errors, strictness and
//! canonical forms are then the same for both, and everything here is about JSON values only.

mod convert;
mod emit;
mod key_order;
mod load;
mod reindent;
mod resolve;
#[cfg(test)]
mod tests;

use meta::Value;
use schema::{Schema, TypeId};
use thiserror::Error;

pub use emit::emit;

use crate::json::{self, DecodeError, DecodeOptions, Decoded, StrictError};

/// The text is not YAML, or holds what JSON cannot. Some callers of upstream put `error converting
/// YAML to JSON: ` before it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum YamlError {
    #[error("yaml: {0}")]
    Yaml(String),
    #[error("yaml: line {line}: {message}")]
    YamlLine { line: usize, message: String },
    /// Words of the conversion to JSON.
    #[error("{0}")]
    Json(String),
}

/// The first document of a text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Converted {
    pub value: Value,
    /// `line 3: key "a" already set in map`. The last one counts.
    pub duplicates: Vec<String>,
}

/// Nesting beyond this is refused, in the words of go-yaml.
const DEPTH_MAX: usize = 10_000;

/// Reads the first document of a text as JSON; an empty text is null.
pub fn load(bytes: &[u8]) -> Result<Converted, YamlError> {
    let text = load::readable(bytes)?;
    let tree = load::Tree::load(text)?;
    convert::convert(&tree)
}

/// Reads an object of a type.
pub fn decode(
    bytes: &[u8],
    schema: &Schema,
    ty: TypeId,
    options: DecodeOptions,
) -> Result<Decoded, DecodeError> {
    decode_with(bytes, options, |bytes| json::decode(bytes, schema, ty, options))
}

/// Reads anything and keeps all of it.
pub fn decode_any(bytes: &[u8], options: DecodeOptions) -> Result<Decoded, DecodeError> {
    decode_with(bytes, options, |bytes| json::decode_any(bytes, options))
}

fn decode_with(
    bytes: &[u8],
    options: DecodeOptions,
    decode: impl FnOnce(&[u8]) -> Result<Decoded, DecodeError>,
) -> Result<Decoded, DecodeError> {
    let converted = load(bytes).map_err(|error| DecodeError::Value(error.to_string()))?;
    let mut json = Vec::with_capacity(bytes.len());
    json::encode_any(&converted.value, &mut json);
    let mut decoded = decode(&json)?;
    if options.strict && !converted.duplicates.is_empty() {
        // Go reports them as one error, before all others.
        let lines = converted.duplicates.join("\n  ");
        let error = StrictError::Other(format!("yaml: unmarshal errors:\n  {lines}"));
        decoded.strict.insert(0, error);
    }
    Ok(decoded)
}
