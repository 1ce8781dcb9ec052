//! Validation of role bindings and cluster role bindings.

use meta::{
    FieldErrors, Value,
    names::{is_dns1123_subdomain, name_is_path_segment},
};

use crate::validation::cursor::Field;

const GROUP: &str = "rbac.authorization.k8s.io";

/// A role binding or a cluster role binding.
pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
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

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(object, errors);
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
