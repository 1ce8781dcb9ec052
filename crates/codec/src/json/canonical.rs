//! Whether a tree is already what its text would be decoded to.

use std::borrow::Cow;

use meta::{
    Map, Number, Value,
    json::write_compact,
    limits::{TooLarge, TreeSize, fits},
};
use schema::{NodeType, Schema, TypeId};

use super::{TREE_DEPTH_MAX, leaf};

/// What [`decode_body`](super::decode_body) would make of the text of a tree, without writing and reading it: the
/// same tree without the nulls of its structs. Err, with the tree as it was, where only the decoder knows or
/// there is something to report: an unknown field, a value of the wrong type or spelling.
pub fn to_canonical(mut value: Value, schema: &Schema, ty: TypeId) -> Result<Value, Value> {
    let Value::Object(map) = &value else { return Err(value) };
    let mut walk = Walk { schema, size: TreeSize::bounded(), has_nulls: false };
    let is_canonical =
        walk.size.add_value().is_ok() && walk.is_struct(map, ty, TREE_DEPTH_MAX).unwrap_or(false);
    if !is_canonical {
        return Err(value);
    }
    if walk.has_nulls {
        drop_nulls(&mut value, &NodeType::Object(ty), schema);
    }
    Ok(value)
}

/// Removes the nulls of structs. Go writes them for some fields without a value.
fn drop_nulls(value: &mut Value, kind: &NodeType, schema: &Schema) {
    match (kind, value) {
        (NodeType::Object(id), Value::Object(map)) => {
            let ty = schema.get(*id);
            map.retain(|key, value| {
                let Some(field) = ty.field(key) else { return true };
                drop_nulls(value, &field.node.kind, schema);
                !value.is_null()
            });
        }
        (NodeType::Map(item), Value::Object(map)) => {
            for (_, value) in map.iter_mut() {
                drop_nulls(value, &item.kind, schema);
            }
        }
        (NodeType::List(item, _), Value::Array(items)) => {
            for value in items {
                drop_nulls(value, &item.kind, schema);
            }
        }
        _ => {}
    }
}

struct Walk<'a> {
    schema: &'a Schema,
    /// The memory of the tree so far: the decoder has the same bound.
    size: TreeSize,
    has_nulls: bool,
}

/// `levels` is how many containers may still be inside of each other. Plain loops, because adapters would
/// take stack on every level.
impl Walk<'_> {
    fn is_struct(&mut self, map: &Map, ty: TypeId, levels: usize) -> Result<bool, TooLarge> {
        let ty = self.schema.get(ty);
        let Some(levels) = self.open(levels)? else { return Ok(false) };
        for (key, value) in map.iter() {
            self.size.add_member()?;
            let same = match ty.field(key) {
                // To a struct, null is the same as absent.
                Some(_) if value.is_null() => {
                    self.has_nulls = true;
                    true
                }
                Some(field) => self.is_node(value, &field.node.kind, levels)?,
                None => ty.preserve_unknown && self.is_any(value, levels)?,
            };
            if !same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_node(&mut self, value: &Value, kind: &NodeType, levels: usize) -> Result<bool, TooLarge> {
        Ok(match (kind, value) {
            (NodeType::Any, _) | (NodeType::AnyObject, Value::Object(_)) => {
                self.is_any(value, levels)?
            }
            (NodeType::Object(id), Value::Object(map)) => self.is_struct(map, *id, levels)?,
            (NodeType::Map(item), Value::Object(map)) => {
                let Some(levels) = self.open(levels)? else { return Ok(false) };
                for (_, value) in map.iter() {
                    self.size.add_member()?;
                    if !self.is_node(value, &item.kind, levels)? {
                        return Ok(false);
                    }
                }
                true
            }
            (NodeType::List(item, _), Value::Array(items)) => {
                let Some(levels) = self.open(levels)? else { return Ok(false) };
                for value in items {
                    self.size.add_value()?;
                    if !self.is_node(value, &item.kind, levels)? {
                        return Ok(false);
                    }
                }
                true
            }
            (NodeType::Raw, Value::Raw(raw)) => {
                self.size.add_copy(raw.tree())?;
                let mut compact = Vec::with_capacity(raw.text().len());
                write_compact(&mut compact, raw.text());
                compact == raw.text().as_bytes() && fits(raw.tree(), levels, &mut 0)
            }
            (NodeType::Bool, Value::Bool(_))
            | (NodeType::Int64, Value::Number(Number::Int(_)))
            | (NodeType::String | NodeType::IntOrString, Value::String(_)) => true,
            (NodeType::Int32 | NodeType::IntOrString, Value::Number(Number::Int(number))) => {
                i32::try_from(*number).is_ok()
            }
            (NodeType::Double, Value::Number(Number::Float(number))) => number.is_finite(),
            (
                NodeType::Quantity
                | NodeType::Time
                | NodeType::MicroTime
                | NodeType::Duration
                | NodeType::Bytes,
                Value::String(text),
            ) => leaf::string(kind, Cow::Borrowed(text), text).is_ok_and(|read| read == *value),
            _ => false,
        })
    }

    fn is_any(&mut self, value: &Value, levels: usize) -> Result<bool, TooLarge> {
        Ok(match value {
            Value::Null | Value::Bool(_) | Value::String(_) | Value::Number(Number::Int(_)) => true,
            // A float without a fraction is written, and then read, as an integer.
            Value::Number(Number::Float(number)) => number.is_finite() && number.fract() != 0.0,
            Value::Array(items) => {
                let Some(levels) = self.open(levels)? else { return Ok(false) };
                for value in items {
                    self.size.add_value()?;
                    if !self.is_any(value, levels)? {
                        return Ok(false);
                    }
                }
                true
            }
            Value::Object(map) => {
                let Some(levels) = self.open(levels)? else { return Ok(false) };
                for value in map.values() {
                    self.size.add_member()?;
                    if !self.is_any(value, levels)? {
                        return Ok(false);
                    }
                }
                true
            }
            // Only raw fields keep their text.
            Value::Raw(_) => false,
        })
    }

    /// Enters a container: how many more there may be inside of it; none if it is too deep itself.
    fn open(&mut self, levels: usize) -> Result<Option<usize>, TooLarge> {
        self.size.add_container()?;
        Ok(levels.checked_sub(1))
    }
}
