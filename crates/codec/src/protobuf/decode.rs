//! Wire to tree. What Go's JSON would leave out is left out here as well, so that an object is the
//! same tree whichever way it came.

use std::cell::RefCell;

use meta::{
    Map, RawJson, Str, Value,
    limits::{TooLarge, TreeSize},
    quantity::Quantity,
    time::{Duration, Time},
};
use schema::{Field, Node, NodeType, Presence, Schema, Type, TypeId};

use super::{
    DEPTH_MAX, ProtobufError,
    tables::{Message, Tables, TagTarget},
    wire::{BYTES, FIXED64, Key, Reader, VARINT},
};
use crate::{base64, growing, json};

pub(super) struct Decoder<'a> {
    tables: &'a Tables,
    schema: &'a Schema,
    /// The memory of the tree so far. An empty message takes two bytes on the wire.
    size: RefCell<TreeSize>,
}

/// A field under construction.
#[derive(Clone, Default)]
enum Slot {
    #[default]
    Absent,
    Value(Value),
    Items(Vec<Value>),
    Members(Vec<(Str, Value)>),
}

type Result<T, E = ProtobufError> = std::result::Result<T, E>;

impl<'a> Decoder<'a> {
    pub(super) fn new(tables: &'a Tables, schema: &'a Schema) -> Self {
        Self { tables, schema, size: RefCell::new(TreeSize::bounded()) }
    }

    fn count(&self, add: fn(&mut TreeSize) -> Result<(), TooLarge>) -> Result<()> {
        Ok(add(&mut self.size.borrow_mut())?)
    }

    pub(super) fn object(&self, message: &[u8], ty: TypeId, depth: usize) -> Result<Value> {
        if depth > DEPTH_MAX {
            return Err(ProtobufError::TooDeep);
        }
        let Type { name, fields, .. } = self.schema.get(ty);
        if message.is_empty() {
            return Ok(Value::object());
        }
        let name = name.rsplit('.').next().unwrap_or_default();
        let mut slots = vec![Slot::Absent; fields.len()];
        self.message(message, name, self.tables.get(ty), fields, &mut slots, depth)?;
        // Exactly as many as there are: a type has up to a hundred fields, an object mostly few of them.
        let present = slots.iter().filter(|slot| !matches!(slot, Slot::Absent)).count();
        self.count(TreeSize::add_container)?;
        let mut members = Vec::with_capacity(present);
        for (field, slot) in fields.iter().zip(slots) {
            let value = match slot {
                Slot::Absent => continue,
                Slot::Value(value) if value.is_null() || is_omitted(field, &value) => continue,
                Slot::Value(value) => value,
                Slot::Items(mut items) => {
                    items.shrink_to_fit();
                    Value::Array(items)
                }
                Slot::Members(mut members) => {
                    members.shrink_to_fit();
                    Value::Object(Map::from_pairs(members))
                }
            };
            members.push((field.name.clone(), value));
        }
        Ok(Value::Object(Map::from_pairs(members)))
    }

    fn message(
        &self,
        message: &[u8],
        name: &str,
        table: &Message,
        fields: &[Field],
        slots: &mut [Slot],
        depth: usize,
    ) -> Result<()> {
        let mut reader = Reader::new(message);
        while let Some(key) = reader.key(name)? {
            match table.find(key.tag) {
                None => reader.skip(key)?,
                Some(TagTarget::Embedded(table)) => {
                    let message = reader.bytes(key, "embedded message")?;
                    self.message(message, name, table, fields, slots, depth)?;
                }
                Some(TagTarget::Field(index)) => {
                    self.field(&fields[*index], key, &mut reader, &mut slots[*index], depth)?;
                }
            }
        }
        Ok(())
    }

    fn field(
        &self,
        field: &Field,
        key: Key,
        reader: &mut Reader<'_>,
        slot: &mut Slot,
        depth: usize,
    ) -> Result<()> {
        // What Go calls a field that it embeds.
        let name = match (field.name.as_str(), &field.node.kind) {
            ("metadata", NodeType::Object(_)) => "ObjectMeta",
            (name, _) => name,
        };
        match &field.node.kind {
            NodeType::List(item, _) if !field.node.wrapped => {
                if !matches!(slot, Slot::Items(_)) {
                    self.count(TreeSize::add_container)?;
                    *slot = Slot::Items(Vec::new());
                }
                let Slot::Items(items) = slot else { return Ok(()) };
                if key.wire_type == BYTES && is_packable(&item.kind) {
                    let mut packed = Reader::new(reader.bytes(key, name)?);
                    let item_key = Key { wire_type: wire_type_of(&item.kind), ..key };
                    while !packed.is_empty() {
                        self.count(TreeSize::add_value)?;
                        let value = self.value(item, item_key, &mut packed, name, depth)?;
                        growing::push(items, value);
                    }
                    return Ok(());
                }
                self.count(TreeSize::add_value)?;
                growing::push(items, self.value(item, key, reader, name, depth)?);
            }
            NodeType::Map(item) => {
                let entry = reader.bytes(key, name)?;
                self.count(TreeSize::add_member)?;
                let entry = self.map_entry(entry, item, name, depth)?;
                match slot {
                    Slot::Members(members) => growing::push(members, entry),
                    _ => *slot = Slot::Members(vec![entry]),
                }
            }
            _ => {
                self.count(TreeSize::add_member)?;
                *slot = Slot::Value(self.value(&field.node, key, reader, name, depth)?);
            }
        }
        Ok(())
    }

    fn map_entry(
        &self,
        entry: &[u8],
        item: &Node,
        name: &str,
        depth: usize,
    ) -> Result<(Str, Value)> {
        let (mut key_text, mut value) = (Str::default(), None);
        let mut reader = Reader::new(entry);
        while let Some(key) = reader.key(name)? {
            match key.tag {
                1 => key_text = reader.text(key, name)?,
                2 => value = Some(self.value(item, key, &mut reader, name, depth)?),
                _ => reader.skip(key)?,
            }
        }
        let value = match value {
            Some(value) => value,
            None => self.absent(item, name, depth)?,
        };
        Ok((key_text, value))
    }

    /// What a map's value is if it wasn't written.
    fn absent(&self, item: &Node, name: &str, depth: usize) -> Result<Value> {
        let wire_type = wire_type_of(&item.kind);
        let zero: &[u8] = if wire_type == FIXED64 { &[0; 8] } else { &[0] };
        self.value(item, Key { tag: 2, wire_type }, &mut Reader::new(zero), name, depth)
    }

    /// Reads a value. Only recursive types are handled here: the rest would enlarge the stack frame
    /// of each level of nesting.
    fn value(
        &self,
        node: &Node,
        key: Key,
        reader: &mut Reader<'_>,
        name: &str,
        depth: usize,
    ) -> Result<Value> {
        match &node.kind {
            NodeType::Object(ty) => self.object(reader.bytes(key, name)?, *ty, depth + 1),
            NodeType::List(item, _) => {
                self.wrapped_list(reader.bytes(key, name)?, item, name, depth)
            }
            NodeType::SchemaOrBool(ty) => self.schema_or_bool(reader.bytes(key, name)?, *ty, depth),
            NodeType::SchemaOrArray(ty) | NodeType::SchemaOrStringArray(ty) => {
                let texts = matches!(node.kind, NodeType::SchemaOrStringArray(_));
                self.schema_or_list(reader.bytes(key, name)?, *ty, texts, depth)
            }
            NodeType::Any | NodeType::AnyObject => {
                Ok(self.any(reader.bytes(key, name)?, name)?.into_tree())
            }
            NodeType::Raw => self.any(reader.bytes(key, name)?, name),
            kind => leaf(kind, key, reader, name),
        }
    }

    /// A list with a message around it.
    fn wrapped_list(&self, message: &[u8], item: &Node, name: &str, depth: usize) -> Result<Value> {
        let mut items = Vec::new();
        let mut reader = Reader::new(message);
        while let Some(key) = reader.key(name)? {
            match key.tag {
                1 => {
                    self.count(TreeSize::add_value)?;
                    items.push(self.value(item, key, &mut reader, name, depth + 1)?);
                }
                _ => reader.skip(key)?,
            }
        }
        Ok(Value::Array(items))
    }

    /// Any JSON, in a message around it.
    fn any(&self, message: &[u8], name: &str) -> Result<Value> {
        let raw = match single_bytes(message, name)? {
            None | Some([]) => return Ok(Value::Null),
            Some(raw) => raw,
        };
        let options = json::DecodeOptions { strict: false };
        match json::decode_any_up_to(raw, options, &mut self.size.borrow_mut()) {
            Ok(decoded) if decoded.value.is_null() => Ok(Value::Null),
            Ok(decoded) => Ok(RawJson::new(String::from_utf8_lossy(raw), decoded.value).into()),
            Err(error) => {
                Err(ProtobufError::Value { field: name.to_owned(), why: error.to_string() })
            }
        }
    }

    fn schema_or_bool(&self, message: &[u8], ty: TypeId, depth: usize) -> Result<Value> {
        let mut value = Value::Bool(false);
        let mut reader = Reader::new(message);
        while let Some(key) = reader.key("JSONSchemaPropsOrBool")? {
            match key.tag {
                1 => {
                    key.expect(VARINT, "allows")?;
                    let allows = reader.varint()? != 0;
                    if !matches!(value, Value::Object(_)) {
                        value = Value::Bool(allows);
                    }
                }
                2 => value = self.object(reader.bytes(key, "schema")?, ty, depth + 1)?,
                _ => reader.skip(key)?,
            }
        }
        Ok(value)
    }

    /// A schema, or a list of schemas or strings.
    fn schema_or_list(
        &self,
        message: &[u8],
        ty: TypeId,
        texts: bool,
        depth: usize,
    ) -> Result<Value> {
        let mut schema = Value::Null;
        let mut items = Vec::new();
        let mut reader = Reader::new(message);
        while let Some(key) = reader.key("JSONSchemaPropsOrArray")? {
            match key.tag {
                1 => schema = self.object(reader.bytes(key, "schema")?, ty, depth + 1)?,
                2 => {
                    self.count(TreeSize::add_value)?;
                    items.push(if texts {
                        Value::String(reader.text(key, "property")?)
                    } else {
                        self.object(reader.bytes(key, "schemas")?, ty, depth + 1)?
                    });
                }
                _ => reader.skip(key)?,
            }
        }
        Ok(if items.is_empty() { schema } else { Value::Array(items) })
    }
}

fn leaf(kind: &NodeType, key: Key, reader: &mut Reader<'_>, name: &str) -> Result<Value> {
    let number = |reader: &mut Reader<'_>| {
        key.expect(VARINT, name)?;
        reader.varint()
    };
    let invalid = |why: String| ProtobufError::Value { field: name.to_owned(), why };
    Ok(match kind {
        NodeType::String => Value::String(reader.text(key, name)?),
        NodeType::Bool => Value::Bool(number(reader)? != 0),
        // The upper half is only there to carry the sign.
        NodeType::Int32 => Value::from(i64::from(number(reader)? as i32)),
        NodeType::Int64 => Value::from(number(reader)? as i64),
        NodeType::Double => {
            key.expect(FIXED64, name)?;
            let number = f64::from_bits(reader.fixed64()?);
            if !number.is_finite() {
                // JSON has no such number.
                return Err(invalid(format!("unsupported value: {number}")));
            }
            Value::from(number)
        }
        NodeType::Bytes => Value::from(base64::encode(reader.bytes(key, name)?)),
        NodeType::Time | NodeType::MicroTime => match timestamp(reader.bytes(key, name)?)? {
            None => Value::Null,
            // What is stored is JSON, and has to be read again.
            Some((seconds, _)) if !WRITABLE_SECONDS.contains(&seconds) => {
                return Err(invalid("year outside of range [0,9999]".to_owned()));
            }
            Some((seconds, nanos)) => Value::from(match kind {
                NodeType::Time => Time::from_unix(seconds, 0).to_rfc3339(),
                _ => Time::from_unix(seconds, nanos).to_rfc3339_micro(),
            }),
        },
        NodeType::Duration => {
            let nanos = single_number(reader.bytes(key, name)?, name)? as i64;
            Value::from(Duration { nanos }.to_string())
        }
        NodeType::Quantity => {
            let text = single_bytes(reader.bytes(key, name)?, name)?.unwrap_or(b"0");
            let text = String::from_utf8_lossy(text);
            let quantity = Quantity::parse(text.trim());
            let quantity = quantity.map_err(|error| ProtobufError::Words(error.to_string()))?;
            Value::from(quantity.to_string())
        }
        NodeType::IntOrString => int_or_string(reader.bytes(key, name)?)?,
        NodeType::Map(_) => return Err(invalid("a map inside of a list or a map".to_owned())),
        NodeType::Object(_)
        | NodeType::Any
        | NodeType::Raw
        | NodeType::AnyObject
        | NodeType::List(..)
        | NodeType::SchemaOrBool(_)
        | NodeType::SchemaOrArray(_)
        | NodeType::SchemaOrStringArray(_) => return Err(invalid("not a leaf".to_owned())),
    })
}

/// From the year 0 to the end of 9999: RFC 3339 has four digits for it.
const WRITABLE_SECONDS: std::ops::Range<i64> = -62_167_219_200..253_402_300_800;

/// Written all the same, but not printed in JSON.
fn is_omitted(field: &Field, value: &Value) -> bool {
    if field.pointer || field.presence != Presence::OmitEmpty {
        return false;
    }
    match (&field.node.kind, value) {
        (NodeType::Any | NodeType::Raw | NodeType::Bytes | NodeType::IntOrString, _) => false,
        (NodeType::Quantity, Value::String(text)) => text == "0",
        (NodeType::Duration, Value::String(text)) => text == "0s",
        (_, Value::Bool(value)) => !value,
        (_, Value::Number(number)) => match number {
            meta::Number::Int(number) => *number == 0,
            meta::Number::Float(number) => *number == 0.0,
        },
        (_, Value::String(text)) => text.is_empty(),
        (_, Value::Object(map)) => map.is_empty(),
        (_, value) => value.is_null(),
    }
}

/// Seconds and nanoseconds; none for the zero time, which has no bytes.
fn timestamp(message: &[u8]) -> Result<Option<(i64, u32)>> {
    if message.is_empty() {
        return Ok(None);
    }
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader::new(message);
    while let Some(key) = reader.key("Timestamp")? {
        match key.tag {
            1 => {
                key.expect(VARINT, "seconds")?;
                seconds = reader.varint()? as i64;
            }
            2 => {
                key.expect(VARINT, "nanos")?;
                nanos = u32::try_from(reader.varint()? as i32).unwrap_or(0);
            }
            _ => reader.skip(key)?,
        }
    }
    Ok(Some((seconds, nanos)))
}

fn int_or_string(message: &[u8]) -> Result<Value> {
    let (mut is_text, mut number, mut text) = (false, 0, Str::default());
    let mut reader = Reader::new(message);
    while let Some(key) = reader.key("IntOrString")? {
        match key.tag {
            1 => {
                key.expect(VARINT, "type")?;
                is_text = reader.varint()? != 0;
            }
            2 => {
                key.expect(VARINT, "intVal")?;
                number = i64::from(reader.varint()? as i32);
            }
            3 => text = reader.text(key, "strVal")?,
            _ => reader.skip(key)?,
        }
    }
    Ok(if is_text { Value::String(text) } else { Value::from(number) })
}

/// Field 1 of a message that has no other.
fn single_bytes<'a>(message: &'a [u8], name: &str) -> Result<Option<&'a [u8]>> {
    let mut found = None;
    let mut reader = Reader::new(message);
    while let Some(key) = reader.key(name)? {
        match key.tag {
            1 => found = Some(reader.bytes(key, name)?),
            _ => reader.skip(key)?,
        }
    }
    Ok(found)
}

fn single_number(message: &[u8], name: &str) -> Result<u64> {
    let mut found = 0;
    let mut reader = Reader::new(message);
    while let Some(key) = reader.key(name)? {
        match key.tag {
            1 => {
                key.expect(VARINT, name)?;
                found = reader.varint()?;
            }
            _ => reader.skip(key)?,
        }
    }
    Ok(found)
}

fn is_packable(kind: &NodeType) -> bool {
    matches!(kind, NodeType::Bool | NodeType::Int32 | NodeType::Int64 | NodeType::Double)
}

fn wire_type_of(kind: &NodeType) -> u8 {
    match kind {
        NodeType::Bool | NodeType::Int32 | NodeType::Int64 => VARINT,
        NodeType::Double => FIXED64,
        _ => BYTES,
    }
}
