//! Validation of controller revisions.

use meta::{FieldErrors, Value};

use crate::validation::cursor::Field;

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    root.get("revision").non_negative(errors);
    match root.get("data").value().map(Value::tree) {
        Some(Value::Object(_)) => {}
        Some(_) => root.get("data").required(errors, "data must be a valid JSON object"),
        None => root.get("data").required(errors, "data is mandatory"),
    }
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    root.get("revision").non_negative(errors);
    root.get("data").immutable(&Field::root(old).get("data"), errors);
}
