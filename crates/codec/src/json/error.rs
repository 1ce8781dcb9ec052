//! What can be wrong with a JSON document, in Go's words.

use std::fmt;

use meta::field::quote;
use thiserror::Error;

/// The document cannot be read as what it should be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// It is not JSON. `offset` counts the bytes that were read, the offending one included.
    #[error("{message}")]
    Syntax { message: String, offset: usize },
    /// It is JSON, but a value has the wrong type or form.
    #[error("{0}")]
    Value(String),
}

/// The document can be read, but says something that would be lost. Callers turn these into errors,
/// warnings or nothing (`fieldValidation`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StrictError {
    UnknownField(String),
    DuplicateField(String),
    /// Words of another parser (YAML).
    Other(String),
}

impl fmt::Display for StrictError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownField(path) => write!(f, "unknown field {}", quote(path)),
            Self::DuplicateField(path) => write!(f, "duplicate field {}", quote(path)),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for StrictError {}
