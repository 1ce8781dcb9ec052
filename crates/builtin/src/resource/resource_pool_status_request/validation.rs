//! Requests for the state of device pools. They are asked once and answered once.

use meta::{
    FieldErrors, Value,
    names::{is_dns1123_subdomain, is_long_name, is_long_name_caseless},
};

use crate::validation::{
    conditions,
    cursor::{Field, IMMUTABLE},
};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    spec.get("driver").require_rule(errors, is_long_name_caseless);
    if spec.get("poolName").is_set() {
        pool_name(&spec.get("poolName"), errors);
    }
    let limit = spec.get("limit");
    at_least(&limit, 1, errors);
    if limit.int_or_zero() > 1000 {
        limit.invalid(errors, "must be less than or equal to 1000");
    }
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    if object.get("spec") != old.get("spec") {
        // Compat: upstream doesn't show what it is about.
        Field::root(object).get("spec").invalid_value(errors, Value::Null, IMMUTABLE);
    }
}

pub(crate) fn validate_status_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let status = root.get("status");
    if old.get("status").is_some_and(|before| !before.is_null()) {
        if status.value() != old.get("status") {
            status.invalid(errors, IMMUTABLE);
        }
        return;
    }
    if !status.is_set() {
        return;
    }
    let list = status.get("conditions");
    conditions(&list, errors);
    let count = status.get("poolCount");
    if count.is_set() {
        at_least(&count, 0, errors);
    } else {
        count.required(errors, "");
    }
    let pools = status.get("pools");
    if pools.len() > 1000 {
        errors.too_many(pools.path(), pools.len(), 1000);
    } else {
        pools.items().for_each(|own| pool(&own, errors));
    }
    if list.len() > 10 {
        errors.too_many(list.path(), list.len(), 10);
    }
}

fn pool(pool: &Field<'_>, errors: &mut FieldErrors) {
    pool.get("driver").require_rule(errors, is_long_name_caseless);
    if pool.get("poolName").require(errors) {
        pool_name(&pool.get("poolName"), errors);
    }
    let generation = pool.get("generation");
    if generation.int_or_zero() == 0 {
        generation.required(errors, "");
    }
    at_least(&generation, 0, errors);
    at_least(&pool.get("resourceSliceCount"), 1, errors);
    for name in ["totalDevices", "allocatedDevices", "availableDevices", "unavailableDevices"] {
        at_least(&pool.get(name), 0, errors);
    }
    if pool.get("nodeName").is_set() {
        pool.get("nodeName").rule(errors, is_dns1123_subdomain);
    }
    let message = pool.get("validationError");
    if message.len() > 256 {
        errors.too_long(message.path(), 256);
    }
}

fn at_least(field: &Field<'_>, min: i64, errors: &mut FieldErrors) {
    if field.int().is_some_and(|number| number < min) {
        field.invalid(errors, &format!("must be greater than or equal to {min}"));
    }
}

/// Names that are divided by slashes.
fn pool_name(name: &Field<'_>, errors: &mut FieldErrors) {
    if name.len() > 253 {
        errors.too_long(name.path(), 253);
    }
    for (at, part) in name.str().split('/').enumerate() {
        if part.is_empty() {
            name.invalid(errors, &format!("segment {at}: must not be empty"));
            continue;
        }
        for why in is_long_name(part) {
            name.invalid_value(errors, part, &format!("segment {at}: {why}"));
        }
    }
}
