//! Validation of the schemas of a definition, apart from their being structural.

use std::collections::{BTreeSet, HashSet};

use meta::{FieldErrors, FieldPath, Map, Value, cancel, field::FieldReason};
use schema::structural::Structural;

use super::{internal_version, validation_options::ValidationOptions};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Restrictions that a schema inherits from the schemas around it.
#[derive(Clone)]
struct Scope {
    /// Why defaults are forbidden.
    no_defaults: Option<String>,
    /// Inside the `apiVersion`, `kind` or `metadata` of a resource.
    in_resource_meta: bool,
    /// All keywords of the schema can be read.
    readable: bool,
}

/// Checks a schema and everything below it.
pub(super) fn check(
    schema: &Value,
    path: &FieldPath,
    options: &ValidationOptions,
    errors: &mut FieldErrors,
) {
    let readable = Structural::new(schema).is_ok();
    let scope = Scope { no_defaults: None, in_resource_meta: false, readable };
    check_schema(schema, path, &scope, true, options, errors);
}

fn check_schema(
    schema: &Value,
    path: &FieldPath,
    scope: &Scope,
    is_root: bool,
    options: &ValidationOptions,
    errors: &mut FieldErrors,
) {
    cancel::checkpoint();
    check_keywords(schema, path, scope, options, errors);
    if schema.bool_at(&["uniqueItems"]) {
        let why =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.forbidden(path.child("uniqueItems"), why);
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    if let Some(additional) = given(schema, "additionalProperties") {
        let at = path.child("additionalProperties");
        if properties.is_some_and(|properties| !properties.is_empty())
            && *additional != Value::Bool(true)
        {
            errors.forbidden(&at, "additionalProperties and properties are mutual exclusive");
        }
        let mut scope = scope.clone();
        if scope.in_resource_meta {
            let why = "inside additionalProperties applying to object metadata";
            scope.no_defaults = Some(why.to_owned());
        }
        if additional.as_object().is_some() {
            check_schema(additional, &at, &scope, false, options, errors);
        }
    }
    let is_resource = is_root || schema.bool_at(&["x-kubernetes-embedded-resource"]);
    for (name, property) in properties.into_iter().flat_map(Map::iter) {
        let mut scope = scope.clone();
        if is_resource && matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
            scope.in_resource_meta = true;
            if is_root {
                scope.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        let at = path.child("properties").key(name);
        check_schema(property, &at, &scope, false, options, errors);
    }
    for_each_nested(schema, path, &mut |nested, at| {
        check_schema(nested, &at, scope, false, options, errors);
    });
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let at = path.child("x-kubernetes-preserve-unknown-fields");
        errors.invalid(at, false, "must be true or undefined");
    }
    check_list_and_map_types(schema, path, options, errors);
    for (at, rule) in schema.items_at(&["x-kubernetes-validations"]).iter().enumerate() {
        let at = path.child("x-kubernetes-validations").index(at);
        check_rule(rule, schema, scope.readable, &at, errors);
    }
}

/// Visits the schemas directly inside a schema, except for its properties.
fn for_each_nested(schema: &Value, path: &FieldPath, visit: &mut dyn FnMut(&Value, FieldPath)) {
    if let Some(not) = given(schema, "not") {
        visit(not, path.child("not"));
    }
    for name in ["allOf", "oneOf", "anyOf"] {
        for (at, nested) in schema.items_at(&[name]).iter().enumerate() {
            visit(nested, path.child(name).index(at));
        }
    }
    let definitions = schema.get("definitions").and_then(Value::as_object);
    for (name, definition) in definitions.into_iter().flat_map(Map::iter) {
        visit(definition, path.child("definitions").key(name));
    }
    match schema.get("items") {
        Some(items @ Value::Object(_)) => visit(items, path.child("items")),
        Some(Value::Array(items)) => {
            for (at, item) in items.iter().enumerate() {
                visit(item, path.child("items").index(at));
            }
        }
        _ => {}
    }
    let dependencies = schema.get("dependencies").and_then(Value::as_object);
    for (name, dependency) in dependencies.into_iter().flat_map(Map::iter) {
        if dependency.as_object().is_some() {
            visit(dependency, path.child("dependencies").key(name));
        }
    }
}

fn check_keywords(
    schema: &Value,
    path: &FieldPath,
    scope: &Scope,
    options: &ValidationOptions,
    errors: &mut FieldErrors,
) {
    if options.require_valid_types && has_invalid_type(schema) {
        let ty = schema.str_at(&["type"]);
        errors.not_supported(path.child("type"), ty, &TYPES);
    }
    if let (Some(why), Some(_)) = (&scope.no_defaults, given(schema, "default")) {
        errors.forbidden(path.child("default"), &format!("must not be set {why}"));
    }
    let filled = |name: &str| match schema.get(name) {
        Some(Value::Object(map)) => {
            !map.is_empty() || matches!(name, "additionalItems" | "dependencies")
        }
        Some(Value::String(text)) => !text.is_empty() || name == "$ref",
        Some(value) => !value.is_null(),
        None => false,
    };
    for name in
        ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"]
    {
        if filled(name) {
            errors.forbidden(path.child(name), &format!("{name} is not supported"));
        }
    }
    if schema.str_at(&["type"]) == "null" {
        let why = "type cannot be set to null, use nullable as an alternative";
        errors.forbidden(path.child("type"), why);
    }
    if !schema.items_at(&["items"]).is_empty() {
        errors.forbidden(path.child("items"), "items must be a schema object and not an array");
    }
    if scope.in_resource_meta && schema.bool_at(&["x-kubernetes-embedded-resource"]) {
        let at = path.child("x-kubernetes-embedded-resource");
        errors.forbidden(at, "must not be used inside of resource meta");
    }
}

fn check_list_and_map_types(
    schema: &Value,
    path: &FieldPath,
    options: &ValidationOptions,
    errors: &mut FieldErrors,
) {
    let ty = schema.str_at(&["type"]);
    let items = schema.get("items").filter(|items| items.as_object().is_some());
    if let Some(map_type) = text(schema, "x-kubernetes-map-type") {
        check_type_for(ty, "object", "x-kubernetes-map-type", path, errors);
        if !matches!(map_type, "atomic" | "granular") {
            let at = path.child("x-kubernetes-map-type");
            errors.not_supported(at, map_type, &["atomic", "granular"]);
        }
    }
    let list_type = text(schema, "x-kubernetes-list-type");
    if let Some(list_type) = list_type {
        if ty != "array" {
            check_type_for(ty, "array", "x-kubernetes-list-type", path, errors);
        } else if options.require_atomic_sets && is_set_of_non_atoms(schema) {
            let is_list = items.is_some_and(|items| items.str_at(&["type"]) == "array");
            let keyword = if is_list { "x-kubernetes-list-type" } else { "x-kubernetes-map-type" };
            // Compat: the list type is shown for either.
            let shown = items.and_then(|items| items.get("x-kubernetes-list-type"));
            let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
            let at = path.child("items").child(keyword);
            errors.invalid(at, shown.cloned().unwrap_or_default(), why);
        }
        if !matches!(list_type, "atomic" | "set" | "map") {
            let at = path.child("x-kubernetes-list-type");
            errors.not_supported(at, list_type, &["atomic", "set", "map"]);
        }
    }
    let keys = schema.items_at(&["x-kubernetes-list-map-keys"]);
    if !keys.is_empty() && list_type != Some("map") {
        let at = path.child("x-kubernetes-list-type");
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list_type {
            None => errors.required(at, why),
            Some(list_type) => errors.invalid(at, list_type, why),
        }
    }
    if list_type == Some("map") {
        check_list_map(schema, items, keys, path, errors);
    }
    if options.require_usable_list_keys {
        check_list_keys(schema, path, errors);
    }
}

fn check_type_for(
    ty: &str,
    expected: &str,
    keyword: &str,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let why = format!("must be {expected} if {keyword} is specified");
    match ty {
        "" => errors.required(path.child("type"), &why),
        ty if ty != expected => errors.invalid(path.child("type"), ty, &why),
        _ => {}
    }
}

fn check_list_map(
    schema: &Value,
    items: Option<&Value>,
    keys: &[Value],
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let keys_path = path.child("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        let why = "must not be empty if x-kubernetes-list-type is map";
        errors.required(&keys_path, why);
    }
    let Some(items) = items else {
        let at = path.child("items");
        match given(schema, "items") {
            None => errors.required(at, "must have a schema if x-kubernetes-list-type is map"),
            Some(several) => {
                let schemas =
                    internal_version::show_schemas(several.as_array().unwrap_or_default());
                let shown = format!("{{\"Schema\":null,\"JSONSchemas\":{schemas}}}");
                let why = "must only have a single schema if x-kubernetes-list-type is map";
                errors.push(FieldReason::Invalid, at, format!("Invalid value: {shown}: {why}"));
            }
        }
        return;
    };
    let item_type = items.str_at(&["type"]);
    if item_type != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        return errors.invalid(path.child("items").child("type"), item_type, why);
    }
    let mut seen = BTreeSet::new();
    for key in keys.iter().filter_map(Value::as_str) {
        // Each error shows all keys.
        if errors.is_full() {
            break;
        }
        match items.at(&["properties", key]) {
            Some(property) => {
                if matches!(property.str_at(&["type"]), "array" | "object") {
                    let why =
                        "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    let at = path.child("items").child("properties").key(key).child("type");
                    errors.invalid(at, item_type, why);
                }
            }
            None => {
                let why = "entries must all be names of item properties";
                errors.invalid(&keys_path, keys.to_vec(), why);
            }
        }
        if !seen.insert(key) {
            errors.invalid(&keys_path, keys.to_vec(), "must not contain duplicate entries");
        }
    }
}

/// Every list map key must be required or have a default.
fn check_list_keys(schema: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let list_type = schema.str_at(&["x-kubernetes-list-type"]);
    let Some(items) = schema.get("items").filter(|items| items.as_object().is_some()) else {
        return;
    };
    if !matches!(list_type, "set" | "map") {
        return;
    }
    if items.bool_at(&["nullable"]) {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.forbidden(path.child("items").child("nullable"), &why);
    }
    if list_type != "map" {
        return;
    }
    let required: HashSet<&str> =
        items.items_at(&["required"]).iter().filter_map(Value::as_str).collect();
    let keys = schema.items_at(&["x-kubernetes-list-map-keys"]);
    for key in keys.iter().filter_map(Value::as_str) {
        let Some(property) = items.at(&["properties", key]) else { continue };
        let at = path.child("items").child("properties").key(key);
        let is_required = required.contains(key);
        if !is_required && given(property, "default").is_none() {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default \
                       or be a required property";
            errors.required(at.child("default"), why);
        }
        if property.bool_at(&["nullable"]) {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.forbidden(at.child("nullable"), why);
        }
    }
}

/// Validates a rule of `x-kubernetes-validations`, except for its expressions.
fn check_rule(
    rule: &Value,
    schema: &Value,
    readable: bool,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let has_newline = |text: &str| text.contains(['\n', '\r']);
    let (expression, message) = (rule.str_at(&["rule"]).trim(), rule.str_at(&["message"]));
    if expression.is_empty() {
        errors.required(path.child("rule"), "rule is not specified");
    } else if !message.is_empty() && message.trim().is_empty() {
        errors.invalid(path.child("message"), message, "must be non-empty if specified");
    } else if has_newline(message.trim()) {
        errors.invalid(path.child("message"), message, "must not contain line breaks");
    } else if has_newline(expression) && message.trim().is_empty() {
        let why = "message must be specified if rule contains line breaks";
        errors.required(path.child("message"), why);
    }
    let message_expression = rule.str_at(&["messageExpression"]);
    if !message_expression.is_empty() && message_expression.trim().is_empty() {
        let why = "messageExpression must be non-empty if specified";
        errors.required(path.child("messageExpression"), why);
    }
    if let Some(reason) = text(rule, "reason").filter(|reason| !REASONS.contains(reason)) {
        errors.not_supported(path.child("reason"), reason, &REASONS);
    }
    let field_path = rule.str_at(&["fieldPath"]);
    if field_path.is_empty() {
        return;
    }
    let at = path.child("fieldPath");
    if field_path.trim().is_empty() {
        errors.invalid(&at, field_path, "must be non-empty if specified");
    }
    if has_newline(field_path) {
        errors.invalid(&at, field_path, "must not contain line breaks");
    }
    if readable && !schema::structural::has_path(schema, field_path) {
        errors.invalid(&at, field_path, "must be a valid path");
    }
}

/// Whether something holds for a schema or any schema inside it.
pub(super) fn any(schema: &Value, holds: &mut dyn FnMut(&Value) -> bool) -> bool {
    cancel::checkpoint();
    if holds(schema) {
        return true;
    }
    let mut found = false;
    for name in ["properties", "patternProperties"] {
        for (_, property) in
            schema.get(name).and_then(Value::as_object).into_iter().flat_map(Map::iter)
        {
            found = found || any(property, holds);
        }
    }
    for name in ["additionalProperties", "additionalItems"] {
        if let Some(additional @ Value::Object(_)) = schema.get(name) {
            found = found || any(additional, holds);
        }
    }
    for_each_nested(schema, &FieldPath::root(), &mut |nested, _| {
        found = found || any(nested, holds);
    });
    found
}

pub(super) fn has_invalid_type(schema: &Value) -> bool {
    let ty = schema.str_at(&["type"]);
    !ty.is_empty() && !TYPES.contains(&ty)
}

/// The items of a set are compared as a whole, so they must be atomic.
pub(super) fn is_set_of_non_atoms(schema: &Value) -> bool {
    let Some(items) = schema.get("items").filter(|items| items.as_object().is_some()) else {
        return false;
    };
    schema.str_at(&["x-kubernetes-list-type"]) == "set"
        && match items.str_at(&["type"]) {
            "array" => text(items, "x-kubernetes-list-type").is_some_and(|own| own != "atomic"),
            "object" => text(items, "x-kubernetes-map-type") != Some("atomic"),
            _ => false,
        }
}

pub(super) fn has_unusable_list_keys(schema: &Value) -> bool {
    let mut errors = FieldErrors::default();
    check_list_keys(schema, &FieldPath::root(), &mut errors);
    !errors.is_empty()
}

/// Whether a schema uses extensions that only structural schemas may have.
pub(super) fn has_extensions(schema: &Value) -> bool {
    const KEYWORDS: [&str; 3] = [
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-list-type",
        "x-kubernetes-validations",
    ];
    schema.bool_at(&["x-kubernetes-embedded-resource"])
        || schema.bool_at(&["x-kubernetes-int-or-string"])
        || !schema.items_at(&["x-kubernetes-list-map-keys"]).is_empty()
        || KEYWORDS.iter().any(|keyword| given(schema, keyword).is_some())
}

fn given<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    schema.get(name).filter(|value| !value.is_null())
}

fn text<'a>(schema: &'a Value, name: &str) -> Option<&'a str> {
    schema.get(name).and_then(Value::as_str)
}
