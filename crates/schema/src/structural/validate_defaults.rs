//! Defaults have to be what they are filled into: known to the schema, and valid.

use meta::{FieldErrors, FieldPath, Map, Str, Value};

use super::{
    cel_rules::Rules,
    node::StructuralNode,
    object_meta::{self, Coercion},
    prune, validate,
    value_path::ValuePath,
};

/// The way from a resource down into its metadata.
#[derive(Clone)]
enum Step {
    Child(Str),
    Item,
}

/// Checks all defaults of a schema that is found at `path`.
pub(super) fn check(
    root: &StructuralNode,
    path: &FieldPath,
    require_pruned: bool,
    errors: &mut FieldErrors,
) {
    check_node(root, true, None, path, require_pruned, errors);
}

/// `resource`: a resource begins here. `meta`: the way here from the resource around, if it leads
/// through its metadata.
fn check_node(
    node: &StructuralNode,
    resource: bool,
    meta: Option<Vec<Step>>,
    path: &FieldPath,
    require_pruned: bool,
    errors: &mut FieldErrors,
) {
    let meta = meta.filter(|_| !resource);
    if let Some(default) = &node.default {
        match &meta {
            Some(steps) => check_in_meta(default, node, steps, path, errors),
            None => check_default(default, node, resource, path, require_pruned, errors),
        }
    }
    if !node.subtree.defaults {
        return;
    }
    if let Some(items) = &node.items {
        let steps = meta.clone().map(|steps| with(steps, Step::Item));
        let path = path.child("items");
        check_node(items, items.embedded_resource, steps, &path, require_pruned, errors);
    }
    // Defaults are not allowed inside additional properties.
    for (name, property) in &node.properties {
        let begins = resource && matches!(name.as_str(), "metadata" | "apiVersion" | "kind");
        let steps = meta.clone().or_else(|| begins.then(Vec::new));
        let steps = steps.map(|steps| with(steps, Step::Child(name.clone())));
        let path = path.child("properties").key(name);
        check_node(property, property.embedded_resource, steps, &path, require_pruned, errors);
    }
}

fn with(mut steps: Vec<Step>, step: Step) -> Vec<Step> {
    steps.push(step);
    steps
}

fn check_default(
    default: &Value,
    node: &StructuralNode,
    resource: bool,
    path: &FieldPath,
    require_pruned: bool,
    errors: &mut FieldErrors,
) {
    let at = path.child("default");
    if require_pruned && pruned(default, node, resource) != *default {
        errors.invalid(&at, default.clone(), "must not have unknown fields");
    }
    let before = errors.count();
    let mut coerced = default.clone();
    let mut how = Coercion { drop_invalid: false, unknown: None };
    let root = ValuePath::root(&at);
    if let Err(wrong) = object_meta::coerce(&mut coerced, node, resource, &root, &mut how) {
        return errors.extend(wrong);
    }
    object_meta::validate(&coerced, node, resource, &root, errors);
    if errors.count() == before {
        check_values(&coerced, node, resource, &at, errors);
    }
}

/// By keywords, and by rules if those hold.
fn check_values(
    default: &Value,
    node: &StructuralNode,
    resource: bool,
    at: &FieldPath,
    errors: &mut FieldErrors,
) {
    let before = errors.count();
    validate::validate_default(default, node, at, errors);
    if errors.count() == before {
        Rules::validate_default(default, node, resource, at, errors);
    }
}

fn pruned(default: &Value, node: &StructuralNode, resource: bool) -> Value {
    let mut pruned = default.clone();
    prune::prune(&mut pruned, Some(node), resource, &mut prune::Unknown::new(None));
    pruned
}

/// A default inside of metadata: the metadata must stay what metadata is.
fn check_in_meta(
    default: &Value,
    node: &StructuralNode,
    steps: &[Step],
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let at = path.child("default");
    let mut resource = surround(default.clone(), steps);
    for (name, value) in [("apiVersion", "validation/v1"), ("kind", "Validation")] {
        if resource.get(name).is_none() {
            resource.set_at(&[name], value);
        }
    }
    let nowhere = FieldPath::root();
    let (root, plain) = (ValuePath::root(&nowhere), StructuralNode::default());
    let mut how = Coercion { drop_invalid: false, unknown: None };
    let mut wrong = FieldErrors::default();
    match object_meta::coerce(&mut resource, &plain, true, &root, &mut how) {
        Err(found) => wrong = found,
        Ok(()) => object_meta::validate(&resource, &plain, true, &root, &mut wrong),
    }
    if wrong.is_empty() {
        check_values(default, node, false, &at, errors);
    } else {
        errors.invalid(at, default.clone(), &format!("must result in valid metadata: {wrong}"));
    }
}

fn surround(value: Value, steps: &[Step]) -> Value {
    steps.iter().rev().fold(value, |value, step| match step {
        Step::Child(name) => Value::Object(Map::from_pairs(vec![(name.clone(), value)])),
        Step::Item => Value::Array(vec![value]),
    })
}

/// Drops from defaults what the schema doesn't know. True if there was something.
pub(super) fn prune_all(root: &mut StructuralNode) -> bool {
    prune_node(root, true, None)
}

fn prune_node(node: &mut StructuralNode, resource: bool, meta: Option<Vec<Step>>) -> bool {
    let meta = meta.filter(|_| !resource);
    let mut changed = false;
    if let Some(default) = node.default.take() {
        node.default = match &meta {
            Some(steps) => prune_in_meta(Value::clone(&default), steps).map(Box::new),
            None => {
                let mut pruned = Value::clone(&default);
                let mut how = Coercion { drop_invalid: true, unknown: None };
                let nowhere = FieldPath::root();
                // Nothing is refused where what is invalid is dropped.
                let _ = object_meta::coerce(
                    &mut pruned,
                    node,
                    resource,
                    &ValuePath::root(&nowhere),
                    &mut how,
                );
                prune::prune(&mut pruned, Some(node), resource, &mut prune::Unknown::new(None));
                Some(Box::new(pruned))
            }
        };
        changed = node.default.as_ref() != Some(&default);
    }
    if !node.subtree.defaults {
        return changed;
    }
    if let super::node::AdditionalProperties::Schema(additional) = &mut node.additional_properties {
        let steps = meta.clone().map(|steps| with(steps, Step::Child(Str::new_static("*"))));
        let embedded = additional.embedded_resource;
        changed |= prune_node(additional, embedded, steps);
    }
    if let Some(items) = &mut node.items {
        let steps = meta.clone().map(|steps| with(steps, Step::Item));
        let embedded = items.embedded_resource;
        changed |= prune_node(items, embedded, steps);
    }
    for (name, property) in &mut node.properties {
        let begins = resource && matches!(name.as_str(), "metadata" | "apiVersion" | "kind");
        let steps = meta.clone().or_else(|| begins.then(Vec::new));
        let steps = steps.map(|steps| with(steps, Step::Child(name.clone())));
        let embedded = property.embedded_resource;
        changed |= prune_node(property, embedded, steps);
    }
    changed
}

/// What of a default the metadata keeps.
fn prune_in_meta(default: Value, steps: &[Step]) -> Option<Value> {
    let mut resource = surround(default, steps);
    let nowhere = FieldPath::root();
    let mut how = Coercion { drop_invalid: true, unknown: None };
    let plain = StructuralNode::default();
    let _ = object_meta::coerce(&mut resource, &plain, true, &ValuePath::root(&nowhere), &mut how);
    steps.iter().try_fold(resource, |mut value, step| match step {
        Step::Child(name) => value.as_object_mut()?.remove(name),
        Step::Item => value.as_array_mut()?.pop(),
    })
}
