//! Embedded resources: their `apiVersion`, `kind` and `metadata` are typed regardless of the
//! schema.

use meta::{
    FieldErrors, FieldPath, Map, Value, cancel,
    limits::{FIELD_PATH_BYTES_MAX, cut},
    names::{NAME_REQUIRED, is_dns1035_label, name_is_path_segment, validate_object_meta},
};

use super::{node::StructuralNode, prune::UnknownFields, typed_object_meta, value_path::ValuePath};

/// How embedded metadata is read.
pub(super) struct Coercion<'a> {
    /// Drop fields of the wrong type instead of rejecting them (objects from storage).
    pub drop_invalid: bool,
    /// Collects the unknown fields of `metadata`.
    pub unknown: Option<&'a mut UnknownFields>,
}

/// Coerces the metadata of embedded resources to its typed form. `embedded` says whether this value
/// is an embedded resource.
pub(super) fn coerce(
    value: &mut Value,
    node: &StructuralNode,
    embedded: bool,
    at: &ValuePath<'_>,
    how: &mut Coercion<'_>,
) -> Result<(), FieldErrors> {
    cancel::checkpoint();
    match value {
        Value::Object(map) => {
            if embedded {
                coerce_resource(map, at, how)?;
            }
            if !node.subtree.embedded {
                return Ok(());
            }
            for (key, value) in map.iter_mut() {
                if let Some(property) = node.property(key) {
                    let at = at.field(key);
                    coerce(value, property, property.embedded_resource, &at, how)?;
                } else if let Some(additional) = node.additional_properties.schema() {
                    coerce(value, additional, additional.embedded_resource, &at.key(key), how)?;
                }
            }
        }
        Value::Array(items) => {
            let Some(node) = node.items.as_deref().filter(|_| node.subtree.embedded) else {
                return Ok(());
            };
            for (index, item) in items.iter_mut().enumerate() {
                coerce(item, node, node.embedded_resource, &at.index(index), how)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn coerce_resource(
    map: &mut Map,
    at: &ValuePath<'_>,
    how: &mut Coercion<'_>,
) -> Result<(), FieldErrors> {
    let refuse = |name: &str, value: &Value, why: &str| {
        let mut errors = FieldErrors::default();
        errors.invalid(at.path().child(name), value.clone(), why);
        Err(errors)
    };
    for name in ["apiVersion", "kind"] {
        match map.get(name) {
            None | Some(Value::String(_)) => {}
            Some(_) if how.drop_invalid => _ = map.remove(name),
            Some(value) => return refuse(name, value, "must be a string"),
        }
    }
    let Some(metadata) = map.get_mut("metadata") else { return Ok(()) };
    if let Err(why) = typed_object_meta::check(metadata) {
        if !how.drop_invalid {
            return refuse("metadata", metadata, &why);
        }
        // A value that is not an object is reported by validation.
        let Some(fields) = metadata.as_object_mut() else { return Ok(()) };
        typed_object_meta::drop_malformed(fields);
    }
    let mut unknown = UnknownFields::default();
    typed_object_meta::normalize(metadata, how.unknown.is_some().then_some(&mut unknown));
    if let Some(found) = &mut how.unknown {
        let prefix = at.path().child("metadata");
        for field in &unknown.paths {
            found.add(|| cut(&format!("{prefix}.{field}"), FIELD_PATH_BYTES_MAX).into_owned());
        }
        found.more += unknown.more;
    }
    Ok(())
}

/// Checks embedded resources as if they were objects of their own.
pub(super) fn validate(
    value: &Value,
    node: &StructuralNode,
    embedded: bool,
    at: &ValuePath<'_>,
    errors: &mut FieldErrors,
) {
    cancel::checkpoint();
    match value {
        Value::Object(map) => {
            if embedded {
                validate_resource(map, &at.path(), errors);
            }
            if !node.subtree.embedded {
                return;
            }
            for (key, value) in map.iter() {
                if let Some(property) = node.property(key) {
                    let at = at.field(key);
                    validate(value, property, property.embedded_resource, &at, errors);
                } else if let Some(additional) = node.additional_properties.schema() {
                    let at = at.key(key);
                    validate(value, additional, additional.embedded_resource, &at, errors);
                }
            }
        }
        Value::Array(items) => {
            let Some(node) = node.items.as_deref().filter(|_| node.subtree.embedded) else {
                return;
            };
            for (index, item) in items.iter().enumerate() {
                validate(item, node, node.embedded_resource, &at.index(index), errors);
            }
        }
        _ => {}
    }
}

fn validate_resource(map: &Map, path: &FieldPath, errors: &mut FieldErrors) {
    for name in ["apiVersion", "kind"] {
        match map.get(name) {
            None => errors.required(path.child(name), ""),
            Some(Value::String(text)) if text.is_empty() => {
                errors.invalid(path.child(name), "", "must not be empty");
            }
            Some(Value::String(text)) => {
                let wrong = if name == "kind" { wrong_kind(text) } else { wrong_version(text) };
                if let Some(why) = wrong {
                    errors.invalid(path.child(name), text.clone(), &why);
                }
            }
            Some(other) => errors.invalid(path.child(name), other.clone(), "must be a string"),
        }
    }
    let Some(metadata) = map.get("metadata") else { return };
    if let Err(why) = typed_object_meta::check(metadata) {
        errors.invalid(path.child("metadata"), metadata.clone(), &why);
        return;
    }
    let mut wrong = FieldErrors::default();
    let namespaced = !metadata.str_at(&["namespace"]).is_empty();
    validate_object_meta(metadata, namespaced, name_is_path_segment, &mut wrong);
    for error in &wrong {
        // A template need not have a name.
        if error.rule == Some(NAME_REQUIRED) {
            continue;
        }
        errors.push(error.reason, path.child(&error.field), error.message.clone());
    }
}

fn wrong_kind(kind: &str) -> Option<String> {
    let wrong = is_dns1035_label(&kind.to_lowercase());
    let why = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
    (!wrong.is_empty()).then_some(why)
}

fn wrong_version(version: &str) -> Option<String> {
    let broken = version.matches('/').count() > 1;
    broken.then(|| format!("unexpected GroupVersion string: {version}"))
}
