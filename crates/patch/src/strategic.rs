//! Strategic merge patch: a merge patch that takes patch strategies and merge keys of lists from
//! the schema, and supports directives (`$patch`, `$retainKeys`, `$setElementOrder/…`,
//! `$deleteFromPrimitiveList/…`). Only built-in kinds support it.

mod list;
mod lookup;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use meta::{Map, Value, cancel};
use schema::{Schema, TypeId};

use crate::{PatchError, go_text, map_edit::MapEdit};
use lookup::PatchMetaLookup;

/// Applies `patch` to an object of type `ty`.
pub fn apply(
    original: &Value,
    patch: &Value,
    schema: &Schema,
    ty: TypeId,
) -> Result<Value, PatchError> {
    let patch = match patch {
        Value::Object(patch) => patch.clone(),
        Value::Null => Map::new(),
        other => {
            return Err(PatchError::Malformed(format!(
                "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                other.type_name()
            )));
        }
    };
    let mut original = original.clone();
    // Compat: Go merges unstructured objects, so raw fields get sorted keys even if the patch is about
    // other fields. A ControllerRevision with unsorted data cannot be patched this way.
    original.flatten_raw();
    let original = match original {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    merge_map(original, patch, &PatchMetaLookup::of_type(schema, ty)).map(Value::Object)
}

/// Merges a patch into an object. The order matters: `$retainKeys` removes fields before any are
/// added, and lists with `$setElementOrder` take their items out of the patch.
fn merge_map(
    mut original: Map,
    mut patch: Map,
    lookup: &PatchMetaLookup<'_>,
) -> Result<Map, PatchError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some(REPLACE) => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some(DELETE) => Ok(Map::new()),
            _ => Err(unknown_directive(&patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    merge_ordered_lists(&mut original, &mut patch, lookup)?;
    let mut original = MapEdit::new(original);
    for (key, new) in patch {
        cancel::checkpoint();
        let deletes = key.starts_with(DELETE_FROM_LIST);
        let key = if deletes {
            let bad = || malformed("invalid patch format of primitive list");
            field_of(&key, DELETE_FROM_LIST).ok_or_else(bad)?.into()
        } else {
            key
        };
        let old = original.take(&key);
        if new.is_null() {
            continue;
        }
        match (old, new) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                let field = lookup.field(&key)?;
                let merged =
                    if field.patch.replace { new } else { merge_map(old, new, &field.lookup)? };
                original.set(&key, merged.into());
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                let field = lookup.list(&key)?;
                let merged = if deletes {
                    list::delete(old, &new, &field)?
                } else {
                    list::merge_field(old, new, &field)?
                };
                original.set(&key, Value::Array(merged));
            }
            // There is nothing to delete from.
            (Some(old), _) if deletes => original.set(&key, old),
            (None, _) if deletes => {}
            (_, new) => {
                if let Some(new) = without_directives(discard_nulls(new)) {
                    original.set(&key, new);
                }
            }
        }
    }
    Ok(original.finish())
}

/// `$retainKeys` lists the only members that may stay; the patch itself may set no others.
fn retain_keys(original: &mut Map, patch: &mut Map) -> Result<(), PatchError> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let bad = || malformed("invalid patch format of retainKeys");
    let retained = retained.as_array().ok_or_else(bad)?;
    let retained: HashSet<&str> = retained.iter().filter_map(Value::as_str).collect();
    let retains = |key: &str| retained.contains(key);
    let is_directive =
        |key: &str| key.starts_with(DELETE_FROM_LIST) || key.starts_with(SET_ELEMENT_ORDER);
    for (key, value) in patch.iter() {
        if !value.is_null() && !is_directive(key) && !retains(key) {
            return Err(bad());
        }
    }
    original.retain(|key, _| retains(key));
    Ok(())
}

/// Merges the lists that a `$setElementOrder/…` belongs to and takes both out of the patch.
fn merge_ordered_lists(
    original: &mut Map,
    patch: &mut Map,
    lookup: &PatchMetaLookup<'_>,
) -> Result<(), PatchError> {
    let directives: Vec<_> =
        patch.keys().filter(|key| key.starts_with(SET_ELEMENT_ORDER)).cloned().collect();
    for directive in directives {
        let order = match patch.remove(&directive) {
            Some(Value::Array(order)) => order,
            other => return Err(wrong_type(LIST, &other.unwrap_or_default())),
        };
        let Some(key) = field_of(&directive, SET_ELEMENT_ORDER) else {
            return Err(malformed("invalid patch format of setElementOrder list"));
        };
        let old = original.get(key).map(as_list).transpose()?;
        let new = patch.get(key).map(as_list).transpose()?;
        let field = lookup.list(key)?;
        if old.is_none() && new.is_none() {
            continue;
        }
        let merged = list::merge_ordered(old, new, &order, &field)?;
        original.insert(key, Value::Array(merged));
        patch.remove(key);
    }
    Ok(())
}

fn as_list(value: &Value) -> Result<&[Value], PatchError> {
    value.as_array().ok_or_else(|| wrong_type(LIST, value))
}

/// The field that a directive is about: `$deleteFromPrimitiveList/finalizers`.
fn field_of<'a>(key: &'a str, directive: &str) -> Option<&'a str> {
    key.strip_prefix(directive)?.strip_prefix('/')
}

/// A new value has nothing that a null could remove.
fn discard_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            kept.map(|(key, value)| (key, discard_nulls(value))).collect::<Map>().into()
        }
        Value::Array(items) => Value::Array(items.into_iter().map(discard_nulls).collect()),
        other => other,
    }
}

/// New items are not merged into anything, so objects with a `$patch` directive are dropped.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => {
            let kept = map.into_iter();
            let kept = kept.filter_map(|(key, value)| Some((key, without_directives(value)?)));
            Some(kept.collect::<Map>().into())
        }
        Value::Array(items) => {
            Some(Value::Array(items.into_iter().filter_map(without_directives).collect()))
        }
        other => Some(other),
    }
}

fn malformed(why: &str) -> PatchError {
    PatchError::Malformed(why.to_owned())
}

fn unknown_directive(patch: &Map) -> PatchError {
    let directive = patch.get(DIRECTIVE).map(go_text::show_as_string).unwrap_or_default();
    let patch = go_text::show(&Value::Object(patch.clone()));
    PatchError::Contradiction(format!("unknown patch type: {directive} in map: {patch}"))
}

fn wrong_type(expected: &str, found: &Value) -> PatchError {
    let found = go_text::type_name(found);
    PatchError::Contradiction(format!("expected a {expected}, but received a {found}"))
}

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const REPLACE: &str = "replace";
const DELETE: &str = "delete";
const MERGE: &str = "merge";
const LIST: &str = "[]interface {}";
const MAP: &str = "map[string]interface {}";
