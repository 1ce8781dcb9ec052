//! Validation of volume attributes classes.

use meta::{FieldErrors, Value};

use crate::{
    storage::storage_class::validation::{driver, parameters},
    validation::cursor::Field,
};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    driver(&root.get("driverName"), errors);
    parameters(&root.get("parameters"), errors);
    if root.get("parameters").is_empty() {
        root.get("parameters").required(errors, "must contain at least one key/value pair");
    }
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (root, old) = (Field::root(object), Field::root(old));
    for name in ["driverName", "parameters"] {
        if root.get(name).value() != old.get(name).value() {
            root.get(name).forbidden(errors, &format!("updates to {name} are forbidden."));
        }
    }
    validate(object, errors);
}
