//! Upgrade from client-side to server-side apply: client-side `kubectl apply` kept its
//! configuration in an annotation.

use meta::{Value, json, names::ANNOTATIONS_BYTES_MAX};

use super::atom::TypeRef;
use super::compare::{NewObject, compare};
use super::set::Set;
use super::typed::{check, field_set};
use super::{Manager, TypeContext};
use crate::json_text;

/// Only kubectl's default field manager is upgraded.
pub(super) const MANAGER: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The fields that client-side apply set and that still have the value it set.
pub(super) fn owned_fields(
    live: &Value,
    types: &TypeContext<'_>,
    manager: &Manager<'_>,
) -> Option<Set> {
    let text = live.at(&["metadata", "annotations", ANNOTATION])?.as_str()?;
    let last = json_text::parse(text)?;
    if last.str_at(&["apiVersion"]) != manager.api_version {
        return None;
    }
    let root = TypeRef::Type(types.ty);
    // If either object does not match the schema (duplicates in an old list), ownership is unknown.
    check(types.schema, root, &last).ok()?;
    check(types.schema, root, live).ok()?;
    let changed = compare(types.schema, root, &last, live, NewObject::Whole);
    let fields = field_set(types.schema, root, &last);
    Some(
        fields
            .difference(&changed.modified)
            .difference(&changed.added)
            .difference(&changed.removed),
    )
}

/// Keeps the annotation up to date, so that users can go back to client-side apply.
pub(super) fn refresh(object: &mut Value, config: &Value) {
    let Some(annotations) = object.at_mut(&["metadata", "annotations"]) else { return };
    let Some(annotations) = annotations.as_object_mut() else { return };
    if annotations.get(ANNOTATION).and_then(Value::as_str).is_none_or(str::is_empty) {
        return;
    }
    let mut config = config.clone();
    config.remove_at(&["metadata", "annotations", ANNOTATION]);
    annotations.insert(ANNOTATION, json::to_string(&config) + "\n");
    let bytes: usize =
        annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if bytes > ANNOTATIONS_BYTES_MAX {
        annotations.remove(ANNOTATION);
    }
}
