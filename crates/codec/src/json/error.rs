//! What can be wrong with a JSON document, in Go's words.

use std::fmt;

use meta::{
    Str,
    field::quote,
    limits::{FIELD_PATH_BYTES_MAX, cut},
};
use thiserror::Error;

/// The document cannot be read as what it should be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// It is not JSON. `offset` counts the bytes that were read, the offending one included.
    #[error("{message}")]
    Syntax { message: String, offset: usize },
    /// It is YAML that cannot be parsed.
    #[error("{0}")]
    Yaml(String),
    /// It is JSON, but a value has the wrong type.
    #[error("{0}")]
    Type(Box<TypeError>),
    /// It is JSON, but a value has the wrong form.
    #[error("{0}")]
    Value(String),
}

/// A value of another type than its field, as Go's `json.UnmarshalTypeError`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeError {
    pub found: Found,
    pub wanted: GoType,
    /// The innermost struct around the value, without its package; none outside of all structs.
    pub struct_name: Option<Str>,
    /// The fields from the outermost struct to the value, as Go names them: embedded structs have
    /// a name, indexes and keys have none.
    pub go_path: Vec<Str>,
    /// The way to the value in the document.
    pub at: Vec<Step>,
}

/// What a document has where another type should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    String,
    /// With its text where a number is wanted and this one doesn't fit.
    Number(Option<String>),
    Bool,
    Object,
    Array,
}

/// A Go type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoType {
    /// `int32`, `[]v1.Container`.
    pub name: String,
    pub kind: GoKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoKind {
    /// `string`, `int32` ….
    Basic,
    /// A basic type under another name (`v1.Protocol`).
    Named,
    Struct,
    Slice,
    Map,
}

/// One step into a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Key(Str),
    Index(usize),
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { found, wanted, .. } = self;
        write!(f, "json: cannot unmarshal {found} into Go ")?;
        match &self.struct_name {
            Some(name) => write!(f, "struct field {name}.{}", self.go_path.join("."))?,
            None => f.write_str("value")?,
        }
        write!(f, " of type {}", wanted.name)
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::String => f.write_str("string"),
            Self::Number(None) => f.write_str("number"),
            Self::Number(Some(text)) => {
                write!(f, "number {}", cut(text, FIELD_PATH_BYTES_MAX))
            }
            Self::Bool => f.write_str("bool"),
            Self::Object => f.write_str("object"),
            Self::Array => f.write_str("array"),
        }
    }
}

/// The document can be read, but says something that would be lost. Callers turn these into errors,
/// warnings or nothing (`fieldValidation`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StrictError {
    UnknownField(String),
    DuplicateField(String),
    /// Keys that YAML has twice. Go reports them as one error.
    YamlDuplicates(Vec<String>),
    /// Text of another parser (JSON patch).
    Other(String),
    /// So many more were found and are not listed.
    More(usize),
}

impl StrictError {
    /// The error in a line each, as clients are warned of it.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::YamlDuplicates(lines) => lines.clone(),
            other => vec![other.to_string()],
        }
    }
}

impl fmt::Display for StrictError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownField(path) => write!(f, "unknown field {}", quote(path)),
            Self::DuplicateField(path) => write!(f, "duplicate field {}", quote(path)),
            Self::YamlDuplicates(lines) => {
                write!(f, "yaml: unmarshal errors:\n  {}", lines.join("\n  "))
            }
            Self::Other(text) => f.write_str(text),
            Self::More(count) => write!(f, "and {count} more unknown or duplicate fields"),
        }
    }
}

impl std::error::Error for StrictError {}
