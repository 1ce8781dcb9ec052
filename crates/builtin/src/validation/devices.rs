//! What the kinds of dynamic resource allocation share: selectors, configurations, names of drivers,
//! pools and attributes.
//!
//! The rules are for the newest version; objects of an older one are converted before.

mod selector;

use std::collections::BTreeSet;

use meta::{
    FieldErrors, Value,
    names::{is_c_identifier, is_dns1123_subdomain, is_label_value, is_qualified_name},
};

use super::cursor::Field;

/// Requests, configurations, constraints, selectors, results.
pub(crate) const LIST_MAX: usize = 32;

pub(crate) const TAINT_EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

pub(crate) fn selectors(list: &Field<'_>, errors: &mut FieldErrors) {
    each(list, LIST_MAX, errors, |selector, errors| {
        let cel = selector.get("cel");
        if !cel.is_set() {
            return cel.required(errors, "");
        }
        selector::validate(&cel, errors);
    });
}

/// What a driver gets to read.
pub(crate) fn configuration(config: &Field<'_>, errors: &mut FieldErrors) {
    let opaque = config.get("opaque");
    if !opaque.is_set() {
        return opaque.required(errors, "");
    }
    driver(&opaque.get("driver"), errors);
    parameters(&opaque.get("parameters"), errors);
}

/// Opaque JSON for the driver.
pub(crate) fn parameters(parameters: &Field<'_>, errors: &mut FieldErrors) {
    const BYTES_MAX: usize = 10 * 1024;
    let Some(value) = parameters.value() else { return parameters.required(errors, "") };
    let bytes = match value {
        Value::Raw(raw) => raw.text().len(),
        other => meta::json::to_string(other).len(),
    };
    if bytes > BYTES_MAX {
        errors.too_long(parameters.path(), BYTES_MAX);
    } else if value.as_object().is_none() {
        parameters.invalid_value(errors, "<value omitted>", "must be a valid JSON object");
    }
}

/// `driver.example.com/name`, where the domain may be left out.
pub(crate) fn attribute_name(name: &str, at: &Field<'_>, errors: &mut FieldErrors) {
    let identifier = |id: &str, errors: &mut FieldErrors| {
        if id.len() > 32 {
            errors.too_long(at.path(), 32);
        }
        for why in is_c_identifier(id) {
            at.invalid_value(errors, id, &why);
        }
    };
    match *name.split('/').collect::<Vec<_>>() {
        [id] => identifier(id, errors),
        [domain, id] => {
            if domain.is_empty() {
                at.invalid_value(errors, "", "the domain must not be empty");
            } else {
                let domain = Value::from(domain);
                driver(&at.with(Some(&domain)), errors);
            }
            if id.is_empty() {
                at.invalid_value(errors, "", "the name must not be empty");
            } else {
                identifier(id, errors);
            }
        }
        // Compat: more slashes are let through.
        _ => {}
    }
}

pub(crate) fn driver(name: &Field<'_>, errors: &mut FieldErrors) {
    super::pod_spec::volume_sources::csi_driver_name(name, errors);
}

pub(crate) fn pool_name(name: &Field<'_>, errors: &mut FieldErrors) {
    if !name.require(errors) {
        return;
    }
    if name.len() > 253 {
        errors.too_long(name.path(), 253);
    }
    for part in name.str().split('/') {
        for why in is_dns1123_subdomain(part) {
            name.invalid_value(errors, part, &why);
        }
    }
}

/// Looks at every item, unless there are too many.
pub(crate) fn each(
    list: &Field<'_>,
    max: usize,
    errors: &mut FieldErrors,
    mut check: impl FnMut(Field<'_>, &mut FieldErrors),
) -> bool {
    if list.len() > max {
        errors.too_many(list.path(), list.len(), max);
        return false;
    }
    for item in list.items() {
        check(item, errors);
    }
    true
}

/// As [`each`], and no two items may have the same key; "" is the item itself.
pub(crate) fn set(
    list: &Field<'_>,
    max: usize,
    errors: &mut FieldErrors,
    key: &str,
    check: impl FnMut(Field<'_>, &mut FieldErrors),
) {
    if !each(list, max, errors, check) {
        return;
    }
    let mut seen = BTreeSet::new();
    for item in list.items() {
        let text = if key.is_empty() { item.str() } else { item.str_at(&[key]) };
        if !seen.insert(text.to_owned()) {
            errors.duplicate(item.path(), text);
        }
    }
}

pub(crate) fn taint(taint: &Field<'_>, old: Option<&Value>, errors: &mut FieldErrors) {
    taint.get("key").rule(errors, is_qualified_name);
    taint.get("value").rule_if_filled(errors, is_label_value);
    let effect = taint.get("effect");
    if old.is_some_and(|old| old.str_at(&["effect"]) == effect.str()) {
        return;
    }
    if effect.require(errors) {
        effect.one_of(errors, &TAINT_EFFECTS);
    }
}
