//! Lists of type `set` and `map` must not contain duplicates.

use std::collections::HashMap;

use meta::{FieldErrors, Map, Number, Str, Value};

use super::{node::StructuralNode, value_path::ValuePath};

pub(super) fn validate(
    value: &Value,
    node: &StructuralNode,
    at: &ValuePath<'_>,
    errors: &mut FieldErrors,
) {
    if !node.subtree.list_types && node.list_type.is_none() {
        return;
    }
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter() {
                if let Some(additional) = node.additional_properties.schema() {
                    validate(value, additional, &at.key(key), errors);
                }
                if let Some(property) = node.property(key) {
                    validate(value, property, &at.field(key), errors);
                }
            }
        }
        Value::Array(items) => {
            match node.list_type.as_deref() {
                Some("set") => {
                    for index in repeated(items.iter().map(Some)) {
                        errors.duplicate(at.index(index).path(), items[index].clone());
                    }
                }
                Some("map") => validate_map(items, &node.list_map_keys, at, errors),
                _ => {}
            }
            let Some(node) = node.items.as_deref() else { return };
            for (index, item) in items.iter().enumerate() {
                validate(item, node, &at.index(index), errors);
            }
        }
        _ => {}
    }
}

fn validate_map(items: &[Value], keys: &[Str], at: &ValuePath<'_>, errors: &mut FieldErrors) {
    let stranger = items.iter().position(|item| !matches!(item, Value::Null | Value::Object(_)));
    if let Some(index) = stranger {
        let why = "must be an object for an array of list-type map";
        return errors.invalid(at.index(index).path(), items[index].clone(), why);
    }
    if items.len() <= 1 {
        return;
    }
    if let [key] = keys {
        for index in repeated(items.iter().map(|item| item.get(key))) {
            errors.duplicate(at.index(index).path(), key_of(&items[index], keys));
        }
        return;
    }
    let of_items: Vec<Value> = items.iter().map(|item| key_of(item, keys)).collect();
    for index in repeated(of_items.iter().map(Some)) {
        errors.duplicate(at.index(index).path(), of_items[index].clone());
    }
}

/// The key fields of an item.
fn key_of(item: &Value, keys: &[Str]) -> Value {
    let member = |key: &Str| Some((key.clone(), item.get(key)?.clone()));
    Value::Object(keys.iter().filter_map(member).collect::<Map>())
}

/// The indexes of duplicates. A third occurrence is not reported again.
fn repeated<'a>(values: impl ExactSizeIterator<Item = Option<&'a Value>>) -> Vec<usize> {
    if values.len() <= 1 {
        return Vec::new();
    }
    let mut seen: HashMap<String, u32> = HashMap::with_capacity(values.len());
    let mut again = Vec::new();
    for (index, value) in values.enumerate() {
        let mut text = value.map(meta::json::to_string).unwrap_or_default();
        // 1 and 1.0 are two values.
        if let Some(Value::Number(Number::Float(_))) = value {
            text.push('f');
        }
        let times = seen.entry(text).or_insert(0);
        *times += 1;
        if *times == 2 {
            again.push(index);
        }
    }
    again
}

/// Whether no value is in the list twice. Compat: 1 and 1.0 are two values.
pub(super) fn all_unique(items: &[Value]) -> bool {
    repeated(items.iter().map(Some)).is_empty()
}
