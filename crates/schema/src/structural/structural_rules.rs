//! The rules of structural schemas: every node has a type, and logical junctors only restrict
//! values.

mod complete;

use meta::{FieldErrors, FieldPath, Str};

use super::node::{AdditionalProperties, JsonType, StructuralNode, ValueValidation};

/// The position of a node in its schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Adds the errors of the schema at `path`, sorted as text.
pub(super) fn check(root: &StructuralNode, path: &FieldPath, errors: &mut FieldErrors) {
    let mut found = FieldErrors::default();
    check_node(root, Level::Root, path, &mut found);
    complete::check(root, path, &mut found);
    found.sort();
    errors.extend(found);
}

fn check_node(node: &StructuralNode, level: Level, path: &FieldPath, errors: &mut FieldErrors) {
    meta::cancel::checkpoint();
    match &node.items {
        Some(items) => check_node(items, Level::Item, &path.child("items"), errors),
        None if node.ty == JsonType::Array => {
            errors.required(path.child("items"), "must be specified");
        }
        None => {}
    }
    for (name, property) in &node.properties {
        check_node(property, Level::Field, &path.child("properties").key(name), errors);
    }
    if node.additional_properties.is_given() {
        let path = path.child("additionalProperties");
        if level == Level::Root {
            errors.forbidden(&path, "must not be used at the root");
        }
        if let AdditionalProperties::Schema(additional) = &node.additional_properties {
            check_node(additional, Level::Field, &path, errors);
        }
        if node.embedded_resource {
            let why = "must not be used if x-kubernetes-embedded-resource is set";
            errors.forbidden(&path, why);
        }
    }
    check_extensions(node, path, errors);
    if let Some(value_validation) = &node.value_validation {
        let forms =
            (is_int_or_string(&value_validation.any_of), first_is_int_or_string(value_validation));
        check_values(value_validation, forms, path, errors);
    }
    check_own_type(node, level, path, errors);
    check_type_and_object_meta(node, level, path, errors);
    if node.embedded_resource && !node.preserve_unknown && node.properties.is_empty() {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without \
                   x-kubernetes-preserve-unknown-fields";
        errors.required(path.child("properties"), why);
    }
}

fn check_extensions(node: &StructuralNode, path: &FieldPath, errors: &mut FieldErrors) {
    let why = "must be false if x-kubernetes-int-or-string is true";
    if node.int_or_string && node.preserve_unknown {
        errors.invalid(path.child("x-kubernetes-preserve-unknown-fields"), true, why);
    }
    if node.int_or_string && node.embedded_resource {
        errors.invalid(path.child("x-kubernetes-embedded-resource"), true, why);
    }
}

fn check_own_type(node: &StructuralNode, level: Level, path: &FieldPath, errors: &mut FieldErrors) {
    let path = path.child("type");
    if node.embedded_resource && node.ty != JsonType::Object {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        if node.ty == JsonType::None {
            errors.required(&path, why);
        } else {
            errors.invalid(&path, node.ty.as_str(), why);
        }
    } else if node.ty == JsonType::None && !node.int_or_string && !node.preserve_unknown {
        let why = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.required(&path, why);
    }
    if level == Level::Root && !matches!(node.ty, JsonType::None | JsonType::Object) {
        errors.invalid(&path, node.ty.as_str(), "must be object at the root");
    }
}

/// The root of a resource: `apiVersion`, `kind` and `metadata` have fixed types.
fn check_type_and_object_meta(
    node: &StructuralNode,
    level: Level,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let is_resource = level == Level::Root || node.embedded_resource;
    for name in ["kind", "apiVersion"].into_iter().filter(|_| is_resource) {
        if let Some(property) = node.property(name).filter(|node| node.ty != JsonType::String) {
            let path = path.child("properties").key(name).child("type");
            errors.invalid(path, property.ty.as_str(), "must be string");
        }
    }
    let Some(metadata) = node.property("metadata") else { return };
    let path = path.child("properties").key("metadata");
    if is_resource && metadata.ty != JsonType::Object {
        errors.invalid(path.child("type"), metadata.ty.as_str(), "must be object");
    }
    if level == Level::Root && !restricts_names_only(metadata) {
        let why = "must not specify anything other than name and generateName, but metadata is \
                   implicitly specified";
        errors.forbidden(&path, why);
    }
}

/// Nothing but a type, a default, and rules for the names.
fn restricts_names_only(metadata: &StructuralNode) -> bool {
    let is_name =
        |(name, _): &(Str, StructuralNode)| matches!(name.as_str(), "name" | "generateName");
    metadata.properties.iter().all(is_name) && metadata.is_unconstrained()
}

/// `anyOf: [{type: integer}, {type: string}]`, the only alternatives that may have types.
fn is_int_or_string(any_of: &[StructuralNode]) -> bool {
    let is_bare = |node: &StructuralNode, ty: JsonType| {
        node.ty == ty
            && node.default.is_none()
            && node.properties.is_empty()
            && node.is_unconstrained()
    };
    matches!(any_of, [first, second]
        if is_bare(first, JsonType::Integer) && is_bare(second, JsonType::String))
}

fn first_is_int_or_string(value_validation: &ValueValidation) -> bool {
    let first = value_validation.all_of.first().and_then(|node| node.value_validation.as_deref());
    first.is_some_and(|first| is_int_or_string(&first.any_of))
}

/// `forms`: whether `anyOf`, or that of the first of `allOf`, is one of the forms of int-or-string.
fn check_values(
    value_validation: &ValueValidation,
    (any_of_form, all_of_form): (bool, bool),
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    if !any_of_form {
        for (at, node) in value_validation.any_of.iter().enumerate() {
            check_nested(node, false, &path.child("anyOf").index(at), errors);
        }
    }
    for (at, node) in value_validation.all_of.iter().enumerate() {
        let form = all_of_form && at == 0;
        check_nested(node, form, &path.child("allOf").index(at), errors);
    }
    for (at, node) in value_validation.one_of.iter().enumerate() {
        check_nested(node, false, &path.child("oneOf").index(at), errors);
    }
    if let Some(not) = &value_validation.not {
        check_nested(not, false, &path.child("not"), errors);
    }
    if let Some(pattern) = &value_validation.pattern
        && let Err(why) = pattern.check()
    {
        let why = format!("must be a valid regular expression, but isn't: {why}");
        errors.invalid(path.child("pattern"), pattern.as_str(), &why);
    }
}

const EMPTY: &str = "must be empty to be structural";
const FALSE: &str = "must be false to be structural";
const UNDEFINED: &str = "must be undefined to be structural";

fn check_nested(
    node: &StructuralNode,
    any_of_form: bool,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    if let Some(value_validation) = &node.value_validation {
        check_values(value_validation, (any_of_form, false), path, errors);
    }
    if let Some(items) = &node.items {
        check_nested(items, false, &path.child("items"), errors);
    }
    for (name, property) in &node.properties {
        check_nested(property, false, &path.child("properties").key(name), errors);
    }
    let allowed_additional = matches!(
        node.additional_properties,
        AdditionalProperties::None | AdditionalProperties::Forbidden
    );
    for (given, name, why) in [
        (node.ty != JsonType::None, "type", EMPTY),
        (!allowed_additional, "additionalProperties", UNDEFINED),
        (node.default.is_some(), "default", UNDEFINED),
        (node.doc_keywords.title, "title", EMPTY),
        (node.doc_keywords.description, "description", EMPTY),
        (node.nullable, "nullable", FALSE),
        (node.preserve_unknown, "x-kubernetes-preserve-unknown-fields", FALSE),
        (node.embedded_resource, "x-kubernetes-embedded-resource", FALSE),
        (node.int_or_string, "x-kubernetes-int-or-string", FALSE),
        (!node.list_map_keys.is_empty(), "x-kubernetes-list-map-keys", EMPTY),
        (node.list_type.is_some(), "x-kubernetes-list-type", UNDEFINED),
        (node.map_type.is_some(), "x-kubernetes-map-type", UNDEFINED),
        (!node.validations.is_empty(), "x-kubernetes-validations", EMPTY),
    ] {
        if given {
            errors.forbidden(path.child(name), why);
        }
    }
    if node.property("metadata").is_some() {
        let path = path.child("properties").key("metadata");
        errors.forbidden(path, "must not be specified in a nested context");
    }
}
