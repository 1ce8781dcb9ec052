//! Roles and their bindings.

use meta::{
    FieldErrors, Value,
    names::{is_dns1123_subdomain, name_is_path_segment, validate_label_selector},
};

use super::cursor::Field;

const GROUP: &str = "rbac.authorization.k8s.io";

/// A role or a cluster role.
pub(crate) fn role(object: &Value, errors: &mut FieldErrors) {
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

/// A role binding or a cluster role binding.
pub(crate) fn binding(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let is_namespaced = root.str_at(&["kind"]) == "RoleBinding";
    let role = root.get("roleRef");
    if role.str_at(&["apiGroup"]) != GROUP {
        role.get("apiGroup").not_supported(errors, &[GROUP]);
    }
    let kinds: &[&str] = if is_namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&role.str_at(&["kind"])) {
        role.get("kind").not_supported(errors, kinds);
    }
    role.get("name").require_rule(errors, |name| name_is_path_segment(name, false));
    for subject in root.get("subjects").items() {
        binding_subject(&subject, is_namespaced, errors);
    }
}

fn binding_subject(subject: &Field<'_>, is_namespaced: bool, errors: &mut FieldErrors) {
    let (name, group) = (subject.get("name"), subject.get("apiGroup"));
    name.require(errors);
    match subject.str_at(&["kind"]) {
        "ServiceAccount" => {
            name.rule_if_filled(errors, is_dns1123_subdomain);
            if !group.is_empty() {
                group.not_supported(errors, &[""]);
            }
            if !is_namespaced {
                subject.get("namespace").require(errors);
            }
        }
        "User" | "Group" => {
            if !group.is(GROUP) {
                group.not_supported(errors, &[GROUP]);
            }
        }
        _ => subject.get("kind").not_supported(errors, &["ServiceAccount", "User", "Group"]),
    }
}

pub(crate) fn binding_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    binding(object, errors);
    if object.get("roleRef") != old.get("roleRef") {
        let root = Field::root(object);
        let role = root.get("roleRef");
        let part = |name: &str| meta::json::to_string(&role.str_at(&[name]).into());
        let shown = format!(
            r#"{{"APIGroup":{},"Kind":{},"Name":{}}}"#,
            part("apiGroup"),
            part("kind"),
            part("name")
        );
        role.invalid_shown(errors, &shown, "cannot change roleRef");
    }
}
