//! YAML as Kubernetes reads and prints it: YAML 1.1 in the dialect of go-yaml 2 (`yes` is true, `010`
//! is eight), by way of JSON.
//!
//! Upstream turns YAML into JSON first and decodes that. So do we: field errors, strictness and
//! canonical forms are then the same for both, and everything here is about JSON values only.

mod convert;
mod emit;
mod key_order;
mod line;
mod load;
mod reindent;
mod resolve;
#[cfg(test)]
mod tests;

use meta::{Number, Value};
use schema::{Schema, TypeId};
use thiserror::Error;

pub use emit::emit;
pub use line::line_of;

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
    /// `line 3: key "a" already set in map`, at most 100 and one line that counts the rest. Of equal
    /// keys the last one counts.
    pub duplicates: Vec<String>,
}

/// Deeper nesting is rejected, with go-yaml's message.
const DEPTH_MAX: usize = 10_000;

/// Reads the first document of a text as JSON; an empty text is null.
pub fn load(bytes: &[u8]) -> Result<Converted, YamlError> {
    load::Tree::load(load::readable(bytes)?, convert::convert)
}

/// Reads an object of a type.
pub fn decode(
    bytes: &[u8],
    schema: &Schema,
    ty: TypeId,
    options: DecodeOptions,
) -> Result<Decoded, DecodeError> {
    decode_with(bytes, options, |bytes| json::decode_body(bytes, schema, ty, options))
}

/// Reads anything and keeps all of it.
pub fn decode_any(bytes: &[u8], options: DecodeOptions) -> Result<Decoded, DecodeError> {
    decode_with(bytes, options, |bytes| json::decode_any_body(bytes, options))
}

fn decode_with(
    bytes: &[u8],
    options: DecodeOptions,
    decode: impl Fn(&[u8]) -> Result<Decoded, DecodeError>,
) -> Result<Decoded, DecodeError> {
    if let Some(decoded) = read_as_json(bytes, &decode) {
        return Ok(decoded);
    }
    let converted = load(bytes).map_err(|error| match error {
        YamlError::Yaml(_) | YamlError::YamlLine { .. } => DecodeError::Yaml(error.to_string()),
        YamlError::Json(text) => DecodeError::Value(text),
    })?;
    let Converted { value, duplicates } = converted;
    let mut json = Vec::with_capacity(bytes.len());
    json::encode_any(&value, &mut json);
    // Two trees at a time would be twice the memory.
    drop(value);
    let mut decoded = decode(&json)?;
    if options.strict && !duplicates.is_empty() {
        // Go reports them as one error, before all others.
        decoded.strict.insert(0, StrictError::YamlDuplicates(duplicates));
    }
    Ok(decoded)
}

/// Many clients send JSON as YAML, and JSON is decoded in a fraction of the time. None where the
/// two might differ: `1.0` is an integer in YAML, tabs and long keys are errors, and so on.
fn read_as_json(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Result<Decoded, DecodeError>,
) -> Option<Decoded> {
    let suspicious = |pattern: &[u8]| memchr::memmem::find(bytes, pattern).is_some();
    // YAML knows no pairs of surrogates.
    let surrogates = [&b"\\ud"[..], b"\\uD"];
    let patterns = [&b"<<"[..], b"\t"].into_iter().chain(surrogates);
    if !bytes.starts_with(b"{") || patterns.into_iter().any(suspicious) {
        return None;
    }
    load::readable(bytes).ok()?;
    let decoded = decode(bytes).ok()?;
    (decoded.strict.is_empty() && is_same_in_yaml(&decoded.value)).then_some(decoded)
}

fn is_same_in_yaml(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Number(Number::Int(_)) => true,
        // `1.0` and `1e3` are integers there.
        Value::Number(Number::Float(number)) => number.fract() != 0.0,
        // Its text would have sorted keys and no white space.
        Value::Raw(_) => false,
        Value::Array(items) => items.iter().all(is_same_in_yaml),
        Value::Object(map) => {
            map.iter().all(|(key, value)| key.len() <= KEY_BYTES_MAX && is_same_in_yaml(value))
        }
    }
}

/// YAML gives up on a key that is longer than 1 024 characters with its quotes.
const KEY_BYTES_MAX: usize = 1_000;
