//! Defaulting, and removal of nulls that are not allowed.

use meta::Value;

use super::node::StructuralNode;

/// Applies defaults to missing fields below `value`, recursively into the defaults themselves.
pub(super) fn default(value: &mut Value, node: &StructuralNode) {
    if !node.subtree.defaults {
        return;
    }
    match value {
        Value::Object(map) => {
            for (name, property) in &node.properties {
                let Some(default) = &property.default else { continue };
                match map.get(name) {
                    None => _ = map.insert(name, Value::clone(default)),
                    Some(Value::Null) if !property.nullable => {
                        map.insert(name, Value::clone(default));
                    }
                    Some(_) => {}
                }
            }
            for (key, value) in map.iter_mut() {
                if let Some(property) = node.property(key) {
                    self::default(value, property);
                } else if let Some(additional) = node.additional_properties.schema() {
                    replace_null(value, additional);
                    self::default(value, additional);
                }
            }
        }
        Value::Array(items) => {
            let Some(node) = node.items.as_deref() else { return };
            for item in items {
                replace_null(item, node);
                default(item, node);
            }
        }
        _ => {}
    }
}

fn replace_null(value: &mut Value, node: &StructuralNode) {
    if value.is_null()
        && !node.nullable
        && let Some(default) = &node.default
    {
        *value = Value::clone(default);
    }
}

/// Removes null fields that are not nullable and have no default.
pub(super) fn drop_nulls(value: &mut Value, node: Option<&StructuralNode>) {
    let Some(node) = node else { return };
    match value {
        Value::Object(map) => map.retain(|key, value| {
            let member = node.member(key);
            if value.is_null()
                && member.is_some_and(|node| !node.nullable && node.default.is_none())
            {
                return false;
            }
            drop_nulls(value, member);
            true
        }),
        Value::Array(items) => {
            for item in items {
                drop_nulls(item, node.items.as_deref());
            }
        }
        _ => {}
    }
}
