//! Tree to wire, backwards: the last field first, so that every length is known when it is written.

use meta::{
    Map, Number, Value,
    cancel::interruptible,
    quantity::Quantity,
    time::{Duration, Time},
};
use schema::{Field, Node, NodeType, Schema, TypeId};

use super::{
    DEPTH_MAX, ProtobufError,
    tables::{Message, Tables, TagTarget},
    wire::Writer,
};
use crate::{base64, json};

pub(super) struct Encoder<'a> {
    pub(super) tables: &'a Tables,
    pub(super) schema: &'a Schema,
}

type Result<T> = std::result::Result<T, ProtobufError>;

impl Encoder<'_> {
    pub(super) fn object(
        &self,
        value: &Value,
        ty: TypeId,
        depth: usize,
        writer: &mut Writer,
    ) -> Result<()> {
        const EMPTY: &Map = &Map::new();
        let map = match value {
            Value::Object(map) => map,
            Value::Null => EMPTY,
            _ => return Err(wrong(&self.schema.get(ty).name, "object", value)),
        };
        if depth > DEPTH_MAX {
            return Err(ProtobufError::TooDeep);
        }
        self.message(map, self.tables.get(ty), &self.schema.get(ty).fields, depth, writer)
    }

    fn message(
        &self,
        map: &Map,
        table: &Message,
        fields: &[Field],
        depth: usize,
        writer: &mut Writer,
    ) -> Result<()> {
        for entry in table.entries.iter().rev() {
            match &entry.target {
                TagTarget::Embedded(table) => {
                    let start = writer.len();
                    self.message(map, table, fields, depth, writer)?;
                    writer.end_message(entry.tag, start);
                }
                TagTarget::Field(index) => {
                    let field = &fields[*index];
                    let value = map.get(&field.name).filter(|value| !value.is_null());
                    self.field(field, value, depth, writer)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn field(
        &self,
        field: &Field,
        value: Option<&Value>,
        depth: usize,
        writer: &mut Writer,
    ) -> Result<()> {
        let (tag, node) = (field.tag, &field.node);
        match (&node.kind, value) {
            (NodeType::List(item, _), Some(Value::Array(items))) if !node.wrapped => {
                for value in interruptible(items.iter().rev()) {
                    self.value(item, tag, value, &field.name, depth, writer)?;
                }
                Ok(())
            }
            (NodeType::Map(item), Some(Value::Object(map))) => {
                for (key, value) in interruptible(map.iter().rev()) {
                    let start = writer.len();
                    self.value(item, 2, value, &field.name, depth, writer)?;
                    writer.field_bytes(1, key.as_bytes());
                    writer.end_message(tag, start);
                }
                Ok(())
            }
            (NodeType::List(..) | NodeType::Map(_), Some(value)) if !node.wrapped => {
                Err(wrong(&field.name, "list or map", value))
            }
            (_, Some(value)) => self.value(node, tag, value, &field.name, depth, writer),
            // Nil is not written; zero is.
            (
                NodeType::List(..)
                | NodeType::Map(_)
                | NodeType::Bytes
                | NodeType::SchemaOrBool(_)
                | NodeType::SchemaOrArray(_)
                | NodeType::SchemaOrStringArray(_),
                None,
            ) => Ok(()),
            (_, None) if field.pointer => Ok(()),
            (_, None) => self.value(node, tag, &Value::Null, &field.name, depth, writer),
        }
    }

    /// Writes a value with its tag; null is the zero value. Only recursive types are handled here:
    /// the rest would enlarge the stack frame of each level of nesting.
    pub(super) fn value(
        &self,
        node: &Node,
        tag: u32,
        value: &Value,
        name: &str,
        depth: usize,
        writer: &mut Writer,
    ) -> Result<()> {
        let start = writer.len();
        match &node.kind {
            NodeType::Object(ty) => self.object(value, *ty, depth + 1, writer)?,
            NodeType::List(item, _) => {
                for value in interruptible(items(value, name)?.iter().rev()) {
                    self.value(item, 1, value, name, depth + 1, writer)?;
                }
            }
            NodeType::SchemaOrBool(ty) => {
                if let Value::Object(_) = value {
                    self.part(2, value, *ty, depth, writer)?;
                }
                let allows = !matches!(value, Value::Bool(false) | Value::Null);
                writer.field_varint(1, u64::from(allows));
            }
            NodeType::SchemaOrArray(ty) | NodeType::SchemaOrStringArray(ty) => {
                if let Value::Object(_) = value {
                    self.part(1, value, *ty, depth, writer)?;
                } else {
                    for value in items(value, name)?.iter().rev() {
                        match value {
                            Value::String(text) => writer.field_bytes(2, text.as_bytes()),
                            schema => self.part(2, schema, *ty, depth, writer)?,
                        }
                    }
                }
            }
            kind => return leaf(kind, tag, value, name, writer),
        }
        writer.end_message(tag, start);
        Ok(())
    }

    /// An object as a field.
    fn part(
        &self,
        tag: u32,
        value: &Value,
        ty: TypeId,
        depth: usize,
        writer: &mut Writer,
    ) -> Result<()> {
        let start = writer.len();
        self.object(value, ty, depth + 1, writer)?;
        writer.end_message(tag, start);
        Ok(())
    }
}

fn leaf(kind: &NodeType, tag: u32, value: &Value, name: &str, writer: &mut Writer) -> Result<()> {
    let invalid = |why: String| ProtobufError::Value { field: name.to_owned(), why };
    let start = writer.len();
    match kind {
        NodeType::String => {
            writer.field_bytes(tag, text(value, name)?.as_bytes());
            return Ok(());
        }
        NodeType::Bool => {
            let value = match value {
                Value::Bool(value) => *value,
                Value::Null => false,
                _ => return Err(wrong(name, "bool", value)),
            };
            writer.field_varint(tag, u64::from(value));
            return Ok(());
        }
        NodeType::Int32 | NodeType::Int64 => {
            writer.field_varint(tag, number(value, name)? as u64);
            return Ok(());
        }
        NodeType::Double => {
            let number = match value {
                Value::Number(Number::Float(number)) => *number,
                other => number(other, name)? as f64,
            };
            writer.field_fixed64(tag, number.to_bits());
            return Ok(());
        }
        NodeType::Bytes => {
            let bytes = base64::decode(text(value, name)?);
            writer.field_bytes(tag, &bytes.map_err(|error| invalid(error.to_string()))?);
            return Ok(());
        }
        NodeType::Time | NodeType::MicroTime => {
            let text = text(value, name)?;
            // Either spelling is fine here; the fraction only goes where it can be read back.
            let time = if text.is_empty() { Ok(Time::ZERO) } else { Time::parse(text) };
            let time = time.map_err(|error| invalid(error.to_string()))?;
            if !time.is_zero() {
                let micro = matches!(kind, NodeType::MicroTime);
                let nanos = if micro { time.nanos() / 1000 * 1000 } else { 0 };
                writer.field_varint(2, u64::from(nanos));
                writer.field_varint(1, time.unix_seconds() as u64);
            }
        }
        NodeType::Duration => {
            let text = text(value, name)?;
            let duration = Duration::parse(if text.is_empty() { "0" } else { text });
            let duration = duration.map_err(|error| invalid(error.to_string()))?;
            writer.field_varint(1, duration.nanos as u64);
        }
        NodeType::Quantity => {
            let quantity = Quantity::from_value(value);
            let quantity = quantity.map_err(|error| invalid(error.to_string()))?;
            writer.field_bytes(1, quantity.to_string().as_bytes());
        }
        NodeType::IntOrString => {
            let (kind, number, text) = match value {
                Value::String(text) => (1, 0, text.as_str()),
                other => (0, number(other, name)?, ""),
            };
            writer.field_bytes(3, text.as_bytes());
            writer.field_varint(2, number as u64);
            writer.field_varint(1, kind);
        }
        NodeType::Any | NodeType::Raw | NodeType::AnyObject => match value {
            Value::Null => {}
            Value::Raw(raw) => writer.field_bytes(1, raw.text().as_bytes()),
            value => {
                let mut raw = Vec::new();
                json::encode_any(value, &mut raw);
                writer.field_bytes(1, &raw);
            }
        },
        NodeType::Map(_) => return Err(invalid("a map inside of a list or a map".to_owned())),
        NodeType::Object(_)
        | NodeType::List(..)
        | NodeType::SchemaOrBool(_)
        | NodeType::SchemaOrArray(_)
        | NodeType::SchemaOrStringArray(_) => return Err(invalid("not a leaf".to_owned())),
    }
    writer.end_message(tag, start);
    Ok(())
}

fn text<'a>(value: &'a Value, name: &str) -> Result<&'a str> {
    match value {
        Value::String(text) => Ok(text),
        Value::Null => Ok(""),
        _ => Err(wrong(name, "string", value)),
    }
}

fn number(value: &Value, name: &str) -> Result<i64> {
    match value {
        Value::Number(Number::Int(number)) => Ok(*number),
        Value::Null => Ok(0),
        _ => Err(wrong(name, "integer", value)),
    }
}

fn items<'a>(value: &'a Value, name: &str) -> Result<&'a [Value]> {
    match value {
        Value::Array(items) => Ok(items),
        Value::Null => Ok(&[]),
        _ => Err(wrong(name, "array", value)),
    }
}

fn wrong(name: &str, expected: &str, value: &Value) -> ProtobufError {
    let why = format!("expected {expected}, found {}", value.type_name());
    ProtobufError::Value { field: name.to_owned(), why }
}
