//! Defaulting, and removal of nulls that are not allowed.

use meta::{
    Value, cancel,
    limits::{TooLarge, TreeSize},
};

use super::node::StructuralNode;

/// Applies defaults to missing fields below `value`, recursively into the defaults themselves.
pub(super) fn default(
    value: &mut Value,
    node: &StructuralNode,
    size: &mut TreeSize,
) -> Result<(), TooLarge> {
    if !node.subtree.defaults {
        return Ok(());
    }
    cancel::checkpoint();
    match value {
        Value::Object(map) => {
            for (name, property) in &node.properties {
                let Some(default) = &property.default else { continue };
                let is_missing = match map.get(name) {
                    None => true,
                    Some(value) => value.is_null() && !property.nullable,
                };
                if is_missing {
                    size.add_copy(default)?;
                    map.insert(name, Value::clone(default));
                }
            }
            for (key, value) in map.iter_mut() {
                if let Some(property) = node.property(key) {
                    self::default(value, property, size)?;
                } else if let Some(additional) = node.additional_properties.schema() {
                    replace_null(value, additional, size)?;
                    self::default(value, additional, size)?;
                }
            }
        }
        Value::Array(items) => {
            let Some(node) = node.items.as_deref() else { return Ok(()) };
            for item in items {
                replace_null(item, node, size)?;
                default(item, node, size)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn replace_null(
    value: &mut Value,
    node: &StructuralNode,
    size: &mut TreeSize,
) -> Result<(), TooLarge> {
    if value.is_null()
        && !node.nullable
        && let Some(default) = &node.default
    {
        size.add_copy(default)?;
        *value = Value::clone(default);
    }
    Ok(())
}

/// Removes null fields that are not nullable and have no default.
pub(super) fn drop_nulls(value: &mut Value, node: Option<&StructuralNode>) {
    let Some(node) = node else { return };
    match value {
        Value::Object(map) => map.retain(|key, value| {
            cancel::checkpoint();
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
