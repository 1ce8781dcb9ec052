//! Fields that are restricted in `allOf`, `anyOf`, `oneOf` or `not` must be specified outside of
//! them as well.

use meta::{FieldErrors, FieldPath};

use crate::structural::node::{StructuralNode, ValueValidation};

pub(super) fn check(root: &StructuralNode, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(value_validation) = &root.value_validation {
        check_values(value_validation, root, path, path, errors);
    }
}

/// `path` is where the node is, `inside` where the alternatives are.
fn check_values(
    value_validation: &ValueValidation,
    node: &StructuralNode,
    path: &FieldPath,
    inside: &FieldPath,
    errors: &mut FieldErrors,
) {
    if let Some(not) = &value_validation.not {
        check_nested(not, Some(node), path, &inside.child("not"), errors);
    }
    for (name, alternatives) in [
        ("allOf", &value_validation.all_of),
        ("anyOf", &value_validation.any_of),
        ("oneOf", &value_validation.one_of),
    ] {
        for (at, alternative) in alternatives.iter().enumerate() {
            check_nested(alternative, Some(node), path, &inside.child(name).index(at), errors);
        }
    }
}

fn check_nested(
    nested: &StructuralNode,
    node: Option<&StructuralNode>,
    path: &FieldPath,
    inside: &FieldPath,
    errors: &mut FieldErrors,
) {
    let Some(node) = node else {
        return errors.required(path, &format!("because it is defined in {inside}"));
    };
    if let Some(value_validation) = &nested.value_validation {
        check_values(value_validation, node, path, inside, errors);
    }
    if let Some(items) = &nested.items {
        let own = node.items.as_deref();
        check_nested(items, own, &path.child("items"), &inside.child("items"), errors);
    }
    for (name, property) in &nested.properties {
        let path = path.child("properties").key(name);
        let inside = inside.child("properties").key(name);
        check_nested(property, node.property(name), &path, &inside, errors);
    }
}
