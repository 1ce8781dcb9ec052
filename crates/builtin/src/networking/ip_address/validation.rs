//! Validation of IP addresses.

use meta::{FieldErrors, Value, names::is_dns1123_subdomain};

use crate::{
    networking::ingress::validation::is_path_segment,
    validation::cursor::{Field, IMMUTABLE},
};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let parent = spec.get("parentRef");
    if !parent.is_set() {
        return parent.required(errors, "");
    }
    parent.get("group").rule_if_filled(errors, is_dns1123_subdomain);
    parent.get("resource").require_rule(errors, is_path_segment);
    parent.get("name").require_rule(errors, is_path_segment);
    parent.get("namespace").rule_if_filled(errors, is_path_segment);
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(object, errors);
    let (root, old) = (Field::root(object), Field::root(old));
    let (spec, before) = (root.get("spec"), old.get("spec"));
    let parent = spec.get("parentRef");
    if parent.value() == before.get("parentRef").value() {
        return;
    }
    if !parent.is_set() {
        return parent.invalid(errors, IMMUTABLE);
    }
    let part = |name: &str| meta::json::to_string(&parent.str_at(&[name]).into());
    let shown = format!(
        r#"{{"Group":{},"Resource":{},"Namespace":{},"Name":{}}}"#,
        part("group"),
        part("resource"),
        part("namespace"),
        part("name")
    );
    parent.invalid_shown(errors, &shown, IMMUTABLE);
}
