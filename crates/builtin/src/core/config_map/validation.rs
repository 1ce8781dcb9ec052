//! Validation of config maps.

use meta::{FieldErrors, FieldPath, Value};

use crate::validation::{
    cursor::Field,
    data::{DATA_BYTES_MAX, decoded_len, frozen, key_rule},
};

pub(crate) fn validate(map: &Value, errors: &mut FieldErrors) {
    let root = Field::root(map);
    let (data, binary) = (root.get("data"), root.get("binaryData"));
    let mut bytes = 0;
    for (key, value) in data.entries() {
        key_rule(key, &value, errors);
        if binary.key(key).is_set() {
            value.invalid_value(errors, key, "duplicate of key present in binaryData");
        }
        bytes += value.len();
    }
    for (key, value) in binary.entries() {
        key_rule(key, &value, errors);
        bytes += decoded_len(value.str());
    }
    if bytes > DATA_BYTES_MAX {
        // Compat: upstream names the root by an empty name.
        errors.too_long(FieldPath::new("[]"), DATA_BYTES_MAX);
    }
}

pub(crate) fn validate_update(map: &Value, old: &Value, errors: &mut FieldErrors) {
    frozen(map, old, &["data", "binaryData"], errors);
    validate(map, errors);
}
