//! Validation of the bindings of admission policies.

use std::collections::BTreeSet;

use meta::{
    FieldErrors, Value,
    names::{is_dns1123_subdomain, name_is_path_segment, validate_label_selector},
};

use crate::validation::{
    admission::{match_resources, mutable_operations},
    cursor::Field,
};

/// The binding of a validating or mutating policy.
pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    spec.get("policyName").require_rule(errors, is_dns1123_subdomain);
    let param = spec.get("paramRef");
    if param.is_set() {
        param_ref(&param, errors);
    }
    let resources = spec.get("matchResources");
    if resources.is_set() {
        match_resources(&resources, errors);
        if root.str_at(&["kind"]) == "MutatingAdmissionPolicyBinding" {
            mutable_operations(&resources, errors);
        }
    }
    if root.str_at(&["kind"]) == "ValidatingAdmissionPolicyBinding" {
        validation_actions(&spec.get("validationActions"), errors);
    }
}

fn param_ref(param: &Field<'_>, errors: &mut FieldErrors) {
    let (name, selector) = (param.get("name"), param.get("selector"));
    let why = "name and selector are mutually exclusive";
    name.rule_if_filled(errors, |name| name_is_path_segment(name, false));
    if !name.is_empty() && selector.is_set() {
        name.forbidden(errors, why);
    }
    validate_label_selector(selector.value(), &selector.path(), errors);
    if !name.is_empty() && selector.is_set() {
        selector.forbidden(errors, why);
    }
    if name.is_empty() && !selector.is_set() {
        param.required(errors, "one of name or selector must be specified");
    }
    let action = param.get("parameterNotFoundAction");
    if action.require(errors) {
        action.one_of(errors, &["Deny", "Allow"]);
    }
}

fn validation_actions(actions: &Field<'_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for action in actions.items() {
        action.one_of(errors, &["Audit", "Deny", "Warn"]);
        if !seen.insert(action.str().to_owned()) {
            action.duplicate(errors);
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure \
                   information in the API response and headers serves no purpose)";
        actions.invalid(errors, why);
    }
    if seen.is_empty() {
        actions.required(errors, "at least one validation action is required");
    }
}
