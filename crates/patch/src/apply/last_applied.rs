//! The way from client-side to server-side apply: `kubectl apply` kept what it applied in an annotation.

use meta::{Value, json, names::ANNOTATIONS_BYTES_MAX};

use super::atom::Place;
use super::compare::{New, compare};
use super::set::Set;
use super::typed::{check, field_set};
use super::{Manager, Typing};
use crate::json_text;

/// Only this one is upgraded: the name that kubectl applies under.
pub(super) const MANAGER: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The fields that client-side apply set and that still have the value it set.
pub(super) fn owned_fields(
    live: &Value,
    typing: &Typing<'_>,
    manager: &Manager<'_>,
) -> Option<Set> {
    let text = live.at(&["metadata", "annotations", ANNOTATION])?.as_str()?;
    let last = json_text::parse(text)?;
    if last.str_at(&["apiVersion"]) != manager.api_version {
        return None;
    }
    let root = Place::Type(typing.ty);
    // Where one of them doesn't fit the schema (duplicates in an old list), nothing is known.
    check(typing.schema, root, &last).ok()?;
    check(typing.schema, root, live).ok()?;
    let changed = compare(typing.schema, root, &last, live, New::Whole);
    let fields = field_set(typing.schema, root, &last);
    Some(
        fields
            .difference(&changed.modified)
            .difference(&changed.added)
            .difference(&changed.removed),
    )
}

/// Keeps the annotation up to date, so that one may go back to client-side apply.
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
