//! Validation of `spec.group`, `spec.names` and `status.acceptedNames`.

use meta::{
    FieldErrors, FieldPath, Value,
    names::{is_dns1035_label, is_dns1123_subdomain},
};

pub(super) fn check_group(group: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let wrong = is_dns1123_subdomain(group);
    if group.is_empty() {
        errors.required(path, "");
    } else if !wrong.is_empty() {
        errors.invalid(path, group, &wrong.join(","));
    } else if !group.contains('.') {
        errors.invalid(path, group, "should be a domain with at least one dot");
    }
}

/// Names that are required in the spec, but not in the status.
pub(super) fn check_required(names: Option<&Value>, path: &FieldPath, errors: &mut FieldErrors) {
    for name in ["plural", "singular", "kind", "listKind"] {
        if text(names, name).is_empty() {
            errors.required(path.child(name), "");
        }
    }
}

/// Validates names of the spec or of the status.
pub(super) fn check(names: Option<&Value>, path: &FieldPath, errors: &mut FieldErrors) {
    for name in ["plural", "singular"] {
        check_label(text(names, name), &path.child(name), errors);
    }
    for name in ["kind", "listKind"] {
        let kind = text(names, name);
        let wrong = is_dns1035_label(&kind.to_lowercase());
        if !kind.is_empty() && !wrong.is_empty() {
            let form = "may have mixed case, but should otherwise match";
            errors.invalid(path.child(name), kind, &format!("{form}: {}", wrong.join(",")));
        }
    }
    check_labels(names, "shortNames", path, errors);
    let (kind, list_kind) = (text(names, "kind"), text(names, "listKind"));
    if !kind.is_empty() && kind == list_kind {
        let why = "kind and listKind may not be the same";
        errors.invalid(path.child("listKind"), list_kind, why);
    }
    check_labels(names, "categories", path, errors);
}

fn check_label(label: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let wrong = is_dns1035_label(label);
    if !label.is_empty() && !wrong.is_empty() {
        errors.invalid(path, label, &wrong.join(","));
    }
}

fn check_labels(names: Option<&Value>, list: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let labels = names.map_or(&[][..], |names| names.items_at(&[list]));
    for (at, label) in labels.iter().enumerate() {
        let label = label.as_str().unwrap_or_default();
        let wrong = is_dns1035_label(label);
        if !wrong.is_empty() {
            errors.invalid(path.child(list).index(at), label, &wrong.join(","));
        }
    }
}

fn text<'a>(names: Option<&'a Value>, name: &str) -> &'a str {
    names.map_or("", |names| names.str_at(&[name]))
}
