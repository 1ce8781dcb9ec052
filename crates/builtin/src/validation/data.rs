//! What config maps and secrets have in common: keys, sizes and immutability.

use meta::{FieldErrors, Value, names::is_config_map_key};

use crate::validation::cursor::Field;

/// What a config map or secret may hold in all.
pub(crate) const DATA_BYTES_MAX: usize = 1024 * 1024;

pub(crate) fn key_rule(key: &str, value: &Field<'_>, errors: &mut FieldErrors) {
    for why in is_config_map_key(key) {
        value.invalid_value(errors, key, &why);
    }
}

/// How many bytes base64 stands for.
pub(crate) fn decoded_len(text: &str) -> usize {
    let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

/// Once `immutable` is set, it and the data stay.
pub(crate) fn frozen(new: &Value, old: &Value, fields: &[&str], errors: &mut FieldErrors) {
    if !old.bool_at(&["immutable"]) {
        return;
    }
    let root = Field::root(new);
    let why = "field is immutable when `immutable` is set";
    if !root.get("immutable").bool() {
        root.get("immutable").forbidden(errors, why);
    }
    for name in fields {
        if new.get(name) != old.get(name) {
            root.get(name).forbidden(errors, why);
        }
    }
}
