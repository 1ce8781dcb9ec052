//! What alternatives restrict must be specified outside of them as well.

use meta::{FieldErrors, FieldPath};

use crate::structural::node::{Checks, Node};

pub(super) fn check(root: &Node, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(checks) = &root.checks {
        check_values(checks, root, path, path, errors);
    }
}

/// `path` is where the node is, `inside` where the alternatives are.
fn check_values(
    checks: &Checks,
    node: &Node,
    path: &FieldPath,
    inside: &FieldPath,
    errors: &mut FieldErrors,
) {
    if let Some(not) = &checks.not {
        check_nested(not, Some(node), path, &inside.child("not"), errors);
    }
    for (name, alternatives) in
        [("allOf", &checks.all_of), ("anyOf", &checks.any_of), ("oneOf", &checks.one_of)]
    {
        for (at, alternative) in alternatives.iter().enumerate() {
            check_nested(alternative, Some(node), path, &inside.child(name).index(at), errors);
        }
    }
}

fn check_nested(
    nested: &Node,
    node: Option<&Node>,
    path: &FieldPath,
    inside: &FieldPath,
    errors: &mut FieldErrors,
) {
    let Some(node) = node else {
        return errors.required(path, &format!("because it is defined in {inside}"));
    };
    if let Some(checks) = &nested.checks {
        check_values(checks, node, path, inside, errors);
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
