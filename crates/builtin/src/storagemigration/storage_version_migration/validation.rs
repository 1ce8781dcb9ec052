//! Storage version migrations.

use meta::{
    FieldErrors, Value,
    names::{is_dns1035_label, is_dns1123_subdomain},
};

use crate::validation::{
    conditions,
    cursor::{Field, IMMUTABLE},
};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let target = spec.get("resource");
    let (group, resource) = (target.get("group"), target.get("resource"));
    if resource.is_empty() {
        resource.required(errors, "resource is required to be set");
    } else {
        all_at_once(&resource, is_dns1035_label, errors);
    }
    if !group.is_empty() {
        all_at_once(&group, is_dns1123_subdomain, errors);
    }
}

/// One error, whatever number of things is wrong.
fn all_at_once(field: &Field<'_>, rule: fn(&str) -> Vec<String>, errors: &mut FieldErrors) {
    let wrong = rule(field.str());
    if !wrong.is_empty() {
        field.invalid(errors, &wrong.join(","));
    }
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(object, errors);
    if object.get("spec") != old.get("spec") {
        Field::root(object).get("spec").invalid(errors, IMMUTABLE);
    }
}

pub(crate) fn validate_status(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let status = root.get("status");
    let version = status.get("resourceVersion");
    let is_number = |text: &str| !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
    if !version.is_empty() && !is_number(version.str()) {
        let why = format!("resource version is not well formed: {}", version.str());
        version.invalid(errors, &why);
    }
    let list = status.get("conditions");
    conditions(&list, errors);
    let before = old.str_at(&["status", "resourceVersion"]);
    if !before.is_empty() && !version.is(before) {
        version.invalid_value(errors, version.str(), IMMUTABLE);
    }
    let is = |migration: &Value, outcome: &str| {
        let mut conditions = migration.items_at(&["status", "conditions"]).iter();
        let found = conditions.find(|condition| condition.str_at(&["type"]) == outcome);
        found.is_some_and(|condition| condition.str_at(&["status"]) == "True")
    };
    for (wrong, why) in [
        (
            is(object, "Succeeded") && is(object, "Failed"),
            "Both success and failed conditions cannot be true at the same time",
        ),
        (
            is(old, "Succeeded") && !is(object, "Succeeded"),
            "Success condition cannot be set to false once it is true",
        ),
        (
            is(old, "Failed") && !is(object, "Failed"),
            "Failed condition cannot be set to false once it is true",
        ),
    ] {
        if wrong {
            list.invalid(errors, why);
        }
    }
}
