//! Validation of roles and cluster roles.

use meta::{FieldErrors, Value, names::validate_label_selector};

use crate::validation::cursor::Field;

/// A role or a cluster role.
pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let is_namespaced = root.str_at(&["kind"]) == "Role";
    for rule in root.get("rules").items() {
        policy_rule(&rule, is_namespaced, errors);
    }
    let aggregation = root.get("aggregationRule");
    if !aggregation.is_set() {
        return;
    }
    let selectors = aggregation.get("clusterRoleSelectors");
    if selectors.is_empty() {
        let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        selectors.required(errors, why);
    }
    for selector in selectors.items() {
        validate_label_selector(selector.value(), &selector.path(), errors);
        if meta::selector::LabelSelector::from_object(selector.value()).is_err() {
            selector.invalid_shown(errors, "null", "invalid label selector.");
        }
    }
}

fn policy_rule(rule: &Field<'_>, is_namespaced: bool, errors: &mut FieldErrors) {
    if rule.get("verbs").is_empty() {
        rule.get("verbs").required(errors, "verbs must contain at least one value");
    }
    let urls = rule.get("nonResourceURLs");
    if !urls.is_empty() {
        if is_namespaced {
            urls.invalid(errors, "namespaced rules cannot apply to non-resource URLs");
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|n| !rule.get(n).is_empty()) {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            urls.invalid(errors, why);
        }
        return;
    }
    if rule.get("apiGroups").is_empty() {
        let why = "resource rules must supply at least one api group";
        rule.get("apiGroups").required(errors, why);
    }
    if rule.get("resources").is_empty() {
        rule.get("resources").required(errors, "resource rules must supply at least one resource");
    }
}
