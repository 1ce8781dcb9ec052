//! Values without members: read as the Go type of their field reads them, and written back in its
//! canonical form.

use std::borrow::Cow;

use meta::{
    Number, Str, Value,
    quantity::Quantity,
    time::{Duration, Time},
};
use schema::NodeType;

use super::error::Found;
use crate::base64;

/// Why a leaf cannot be what its field says.
pub(super) enum LeafError {
    /// `cannot unmarshal {found} into … of type {expected}`. Go goes on reading after it.
    Type { found: Found, expected: Option<&'static str> },
    /// The same out of a type's own reader: Go stops there.
    FatalType { found: Found, expected: &'static str },
    /// Text of the type's own, after which Go goes on.
    Other(String),
    /// Text of the type's own, after which Go stops.
    Fatal(String),
    /// Go doesn't mind.
    Ignored,
}

type Result = std::result::Result<Value, LeafError>;

/// Reads a string; `raw` is how it was spelt between its quotes.
pub(super) fn string(kind: &NodeType, text: Cow<'_, str>, raw: &str) -> Result {
    match kind {
        NodeType::String | NodeType::Any | NodeType::IntOrString => Ok(Value::String(to_str(text))),
        NodeType::Quantity => quantity(raw),
        NodeType::Time => {
            let time = Time::parse(&text).map_err(|error| LeafError::Fatal(error.to_string()))?;
            Ok(canonical_time(time, Time::to_rfc3339))
        }
        NodeType::MicroTime => {
            let time =
                Time::parse_micro(&text).map_err(|error| LeafError::Fatal(error.to_string()));
            Ok(canonical_time(time?, Time::to_rfc3339_micro))
        }
        NodeType::Duration => match Duration::parse(&text) {
            Ok(duration) => Ok(Value::from(duration.to_string())),
            Err(error) => Err(LeafError::Fatal(error.to_string())),
        },
        NodeType::Bytes => match base64::decode(&text) {
            Ok(bytes) => Ok(Value::from(base64::encode(&bytes))),
            Err(error) => Err(LeafError::Other(error.to_string())),
        },
        kind => Err(no_leaf(kind, Found::String)),
    }
}

/// Reads a number, given as text that is one.
pub(super) fn number(kind: &NodeType, text: &str) -> Result {
    match kind {
        NodeType::Int32 | NodeType::Int64 => {
            let number = text.parse::<i64>().ok();
            let fits = |n: &i64| matches!(kind, NodeType::Int64) || i32::try_from(*n).is_ok();
            number.filter(fits).map(Value::from).ok_or_else(|| wrong(number_of(text)))
        }
        NodeType::Double => match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Value::from(number)),
            _ => Err(wrong(number_of(text))),
        },
        NodeType::Any => free_number(text),
        NodeType::Quantity => quantity(text),
        NodeType::IntOrString => match text.parse::<i32>() {
            Ok(number) => Ok(Value::from(i64::from(number))),
            Err(_) => Err(fatal(number_of(text), "int32")),
        },
        NodeType::Time | NodeType::MicroTime | NodeType::Duration => {
            Err(fatal(Found::Number(None), "string"))
        }
        kind => Err(no_leaf(kind, Found::Number(None))),
    }
}

/// Reads one of the numbers that are bytes.
pub(super) fn byte(text: &str) -> Result {
    let number = text.parse::<u8>().ok();
    number.map(|n| Value::from(i64::from(n))).ok_or_else(|| wrong(number_of(text)))
}

/// The bytes that some numbers are.
pub(super) fn bytes(numbers: &[Value]) -> Value {
    let number = |value: &Value| value.as_i64().and_then(|n| u8::try_from(n).ok());
    let bytes: Vec<u8> = numbers.iter().map(|value| number(value).unwrap_or_default()).collect();
    Value::from(base64::encode(&bytes))
}

/// A number in free JSON is an integer if it is written as one and fits, as in Kubernetes'
/// unstructured objects.
pub(super) fn free_number(text: &str) -> Result {
    if let Ok(number) = text.parse::<i64>() {
        return Ok(Value::from(number));
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(Value::from(number)),
        _ => Err(LeafError::Type { found: number_of(text), expected: Some("float64") }),
    }
}

pub(super) fn bool(kind: &NodeType, value: bool) -> Result {
    match kind {
        NodeType::Bool | NodeType::Any | NodeType::SchemaOrBool(_) => Ok(Value::Bool(value)),
        NodeType::Quantity => quantity(if value { "true" } else { "false" }),
        NodeType::IntOrString => Err(fatal(Found::Bool, "int32")),
        NodeType::Time | NodeType::MicroTime | NodeType::Duration => {
            Err(fatal(Found::Bool, "string"))
        }
        kind => Err(no_leaf(kind, Found::Bool)),
    }
}

/// An object or array where there should be none.
pub(super) fn container(kind: &NodeType, found: Found) -> LeafError {
    match kind {
        NodeType::Quantity => LeafError::Fatal(meta::quantity::QuantityError::Format.to_string()),
        NodeType::IntOrString => fatal(found, "int32"),
        NodeType::Time | NodeType::MicroTime | NodeType::Duration => fatal(found, "string"),
        kind => no_leaf(kind, found),
    }
}

/// A value that this kind has no use for.
fn no_leaf(kind: &NodeType, found: Found) -> LeafError {
    match kind {
        NodeType::SchemaOrBool(_) => LeafError::Fatal("boolean or JSON schema expected".to_owned()),
        // Go reads past anything else.
        NodeType::SchemaOrArray(_) | NodeType::SchemaOrStringArray(_) => LeafError::Ignored,
        _ => wrong(found),
    }
}

/// What `null` is as a list item or a map's value: Go's zero value.
pub(super) fn zero(kind: &NodeType) -> Value {
    match kind {
        NodeType::Bool => Value::Bool(false),
        NodeType::Int32 | NodeType::Int64 | NodeType::IntOrString => Value::from(0),
        NodeType::Double => Value::Number(Number::Float(0.0)),
        NodeType::String | NodeType::Bytes => Value::from(""),
        NodeType::Duration => Value::from("0s"),
        NodeType::Quantity => Value::from("0"),
        NodeType::Object(_) => Value::object(),
        NodeType::Any
        | NodeType::Raw
        | NodeType::AnyObject
        | NodeType::Time
        | NodeType::MicroTime
        | NodeType::List(..)
        | NodeType::Map(_)
        | NodeType::SchemaOrBool(_)
        | NodeType::SchemaOrArray(_)
        | NodeType::SchemaOrStringArray(_) => Value::Null,
    }
}

fn quantity(text: &str) -> Result {
    match Quantity::parse(text.trim()) {
        Ok(quantity) => Ok(Value::from(quantity.to_string())),
        Err(error) => Err(LeafError::Fatal(error.to_string())),
    }
}

/// Go's zero time is printed as `null`, which is as good as absent.
fn canonical_time(time: Time, print: impl Fn(Time) -> String) -> Value {
    if time.is_zero() { Value::Null } else { Value::from(print(time)) }
}

pub(super) fn to_str(text: Cow<'_, str>) -> Str {
    match text {
        Cow::Borrowed(text) => Str::new(text),
        Cow::Owned(text) => Str::from(text),
    }
}

fn wrong(found: Found) -> LeafError {
    LeafError::Type { found, expected: None }
}

fn fatal(found: Found, expected: &'static str) -> LeafError {
    LeafError::FatalType { found, expected }
}

/// A number that doesn't fit: Go shows it.
fn number_of(text: &str) -> Found {
    Found::Number(Some(text.to_owned()))
}
