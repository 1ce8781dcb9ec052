//! Lists of type `set` and `map` must not contain duplicates.

use std::cmp::Ordering;

use meta::{FieldErrors, Map, Number, Str, Value, cancel};

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
    // Sorted instead of collected in a set: a list of numbers takes no more memory than it has.
    let mut sorted: Vec<(Option<&Value>, u32)> = values.zip(0..).collect();
    sorted.sort_unstable_by(|(a, at), (b, other)| {
        cancel::checkpoint();
        compare(*a, *b).then(at.cmp(other))
    });
    let equal = |a: &(Option<&Value>, u32), b: &(Option<&Value>, u32)| compare(a.0, b.0).is_eq();
    let runs = sorted.chunk_by(equal);
    let mut again: Vec<usize> =
        runs.filter_map(|run| run.get(1)).map(|(_, index)| *index as usize).collect();
    again.sort_unstable();
    again
}

/// A total order in which only equal values are equal. Compat: 1 and 1.0 are two values.
fn compare(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    let rank = |value: Option<&Value>| match value {
        None => 0,
        Some(Value::Null) => 1,
        Some(Value::Bool(_)) => 2,
        Some(Value::Number(Number::Int(_))) => 3,
        Some(Value::Number(Number::Float(_))) => 4,
        Some(Value::String(_)) => 5,
        Some(Value::Array(_)) => 6,
        Some(Value::Object(_) | Value::Raw(_)) => 7,
    };
    match (a, b) {
        (Some(Value::Bool(a)), Some(Value::Bool(b))) => a.cmp(b),
        (Some(Value::Number(Number::Int(a))), Some(Value::Number(Number::Int(b)))) => a.cmp(b),
        (Some(Value::Number(Number::Float(a))), Some(Value::Number(Number::Float(b)))) => {
            a.total_cmp(b)
        }
        (Some(Value::String(a)), Some(Value::String(b))) => a.as_str().cmp(b.as_str()),
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            for (item, other) in a.iter().zip(b) {
                let order = compare(Some(item), Some(other));
                if order.is_ne() {
                    return order;
                }
            }
            a.len().cmp(&b.len())
        }
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            for ((key, value), (other_key, other)) in a.iter().zip(b.iter()) {
                let order = key.cmp(other_key).then_with(|| compare(Some(value), Some(other)));
                if order.is_ne() {
                    return order;
                }
            }
            a.len().cmp(&b.len())
        }
        (a, b) => rank(a).cmp(&rank(b)),
    }
}

/// Whether no value is in the list twice. Compat: 1 and 1.0 are two values.
pub(super) fn all_unique(items: &[Value]) -> bool {
    repeated(items.iter().map(Some)).is_empty()
}
