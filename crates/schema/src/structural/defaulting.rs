//! Fills in defaults, and drops the nulls that stand for nothing.

use meta::Value;

use super::node::Node;

/// Fills in what is missing below `value`. What a default brings may get defaults of its own.
pub(super) fn default(value: &mut Value, node: &Node) {
    if !node.below.defaults {
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
                } else if let Some(additional) = node.additional.schema() {
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

fn replace_null(value: &mut Value, node: &Node) {
    if value.is_null()
        && !node.nullable
        && let Some(default) = &node.default
    {
        *value = Value::clone(default);
    }
}

/// Drops members that are null where null is no value and no default will replace it.
pub(super) fn drop_nulls(value: &mut Value, node: Option<&Node>) {
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
