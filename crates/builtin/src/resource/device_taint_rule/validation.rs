//! A device taint rule: a taint, and the devices that get it.

use meta::{FieldErrors, Value, names::is_dns1123_label};

use crate::validation::{
    conditions,
    cursor::Field,
    devices::{driver, pool_name, taint},
};

pub(crate) fn validate(object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let selector = spec.get("deviceSelector");
    if selector.get("driver").is_set() {
        driver(&selector.get("driver"), errors);
    }
    if selector.get("pool").is_set() {
        pool_name(&selector.get("pool"), errors);
    }
    if selector.get("device").is_set() {
        selector.get("device").rule(errors, is_dns1123_label);
    }
    taint(&spec.get("taint"), old.and_then(|old| old.at(&["spec", "taint"])), errors);
}

pub(crate) fn validate_status(rule: &Value, errors: &mut FieldErrors) {
    let root = Field::root(rule);
    let status = root.get("status");
    conditions(&status.get("conditions"), errors);
    if status.get("conditions").len() > 8 {
        errors.too_many(status.get("conditions").path(), status.get("conditions").len(), 8);
    }
}
