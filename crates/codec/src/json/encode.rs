//! Compact JSON in the order of the schema, with what Go always prints and without what it omits.

use meta::{
    Map, Number, Value,
    cancel::interruptible,
    json::{write_string, write_value},
    quantity::Quantity,
};
use schema::{Field, Node, NodeType, Presence, Schema, Type, TypeId};

/// Appends an object of a type.
pub fn encode(value: &Value, schema: &Schema, ty: TypeId, out: &mut Vec<u8>) {
    match value {
        Value::Object(map) => write_struct(map, schema.get(ty), schema, out),
        other => write_value(out, other),
    }
}

/// Appends any value with sorted keys and nothing omitted: for custom resources, which have no Go
/// struct.
pub fn encode_any(value: &Value, out: &mut Vec<u8>) {
    write_value(out, value);
}

/// Appends a value according to its schema node.
pub fn encode_node(value: &Value, node: &Node, schema: &Schema, out: &mut Vec<u8>) {
    match (&node.kind, value) {
        (
            NodeType::Object(id)
            | NodeType::SchemaOrBool(id)
            | NodeType::SchemaOrArray(id)
            | NodeType::SchemaOrStringArray(id),
            Value::Object(map),
        ) => write_struct(map, schema.get(*id), schema, out),
        (NodeType::List(item, _), Value::Array(items)) => {
            write_list(items, out, |value, out| encode_node(value, item, schema, out));
        }
        (NodeType::SchemaOrArray(id), Value::Array(items)) => {
            write_list(items, out, |value, out| encode(value, schema, *id, out));
        }
        (NodeType::Map(item), Value::Object(map)) => {
            let mut members = ObjectWriter::open(out);
            for (key, value) in interruptible(map.iter()) {
                encode_node(value, item, schema, members.key(key));
            }
            members.close();
        }
        (_, value) => write_value(out, value),
    }
}

/// Removes empty lists and maps, which the storage format of built-in kinds (protobuf) cannot
/// distinguish from absent ones. A server that stores another format has to remove them too, or a
/// list like `rules: []` would read back differently.
pub fn remove_empty_fields(value: &mut Value, schema: &Schema, ty: TypeId) {
    let Value::Object(map) = value else { return };
    let ty = schema.get(ty);
    map.retain(|key, value| {
        let Some(field) = ty.field(key) else { return true };
        remove_empty_fields_in_node(value, &field.node, schema);
        let empty = match (&field.node.kind, &*value) {
            (NodeType::List(..), Value::Array(items)) => items.is_empty(),
            (NodeType::Map(_), Value::Object(map)) => map.is_empty(),
            (_, value) => value.is_null(),
        };
        !empty
    });
}

fn remove_empty_fields_in_node(value: &mut Value, node: &Node, schema: &Schema) {
    match (&node.kind, value) {
        (
            NodeType::Object(id)
            | NodeType::SchemaOrBool(id)
            | NodeType::SchemaOrArray(id)
            | NodeType::SchemaOrStringArray(id),
            value @ Value::Object(_),
        ) => remove_empty_fields(value, schema, *id),
        (NodeType::SchemaOrArray(id), Value::Array(items)) => {
            for value in interruptible(items.iter_mut()) {
                remove_empty_fields(value, schema, *id);
            }
        }
        (NodeType::List(item, _), Value::Array(items)) => {
            for value in interruptible(items.iter_mut()) {
                remove_empty_fields_in_node(value, item, schema);
            }
        }
        (NodeType::Map(item), Value::Object(map)) => {
            for (_, value) in interruptible(map.iter_mut()) {
                remove_empty_fields_in_node(value, item, schema);
            }
        }
        _ => {}
    }
}

/// Normalizes an object to what decoding its encoding would give: without fields that are not
/// written, and with the zero values that are written for absent ones. Objects that Go cannot
/// distinguish are equal afterwards.
pub fn normalize(value: &mut Value, schema: &Schema, ty: TypeId) {
    remove_empty_fields(value, schema, ty);
    fill_zeros(value, schema, ty);
}

fn fill_zeros(value: &mut Value, schema: &Schema, ty: TypeId) {
    let Value::Object(map) = value else { return };
    let ty = schema.get(ty);
    if ty.preserve_unknown {
        return;
    }
    map.retain(|key, value| {
        let Some(field) = ty.field(key) else { return true };
        fill_zeros_in_node(value, &field.node, schema);
        field.presence != Presence::OmitEmpty || !is_zero(value, &field.node, schema)
    });
    for field in &ty.fields {
        if field.presence == Presence::Always && !map.contains_key(&field.name) {
            map.insert(&field.name, zero(field, schema));
        }
    }
}

fn fill_zeros_in_node(value: &mut Value, node: &Node, schema: &Schema) {
    match (&node.kind, value) {
        (NodeType::Object(id), value @ Value::Object(_)) => fill_zeros(value, schema, *id),
        (NodeType::List(item, _), Value::Array(items)) => {
            for value in interruptible(items.iter_mut()) {
                fill_zeros_in_node(value, item, schema);
            }
        }
        (NodeType::Map(item), Value::Object(map)) => {
            for (_, value) in interruptible(map.iter_mut()) {
                fill_zeros_in_node(value, item, schema);
            }
        }
        _ => {}
    }
}

/// [`write_zero`] as a value.
fn zero(field: &Field, schema: &Schema) -> Value {
    if field.pointer {
        return Value::Null;
    }
    match &field.node.kind {
        NodeType::Object(id) => {
            let mut value = Value::object();
            fill_zeros(&mut value, schema, *id);
            value
        }
        NodeType::Bool => false.into(),
        NodeType::Int32 | NodeType::Int64 | NodeType::Double | NodeType::IntOrString => 0i64.into(),
        NodeType::String => "".into(),
        NodeType::Duration => "0s".into(),
        NodeType::Quantity => "0".into(),
        _ => Value::Null,
    }
}

fn write_struct(map: &Map, ty: &Type, schema: &Schema, out: &mut Vec<u8>) {
    let mut members = ObjectWriter::open(out);
    if ty.preserve_unknown {
        for (key, value) in interruptible(map.iter()) {
            let out = members.key(key);
            match ty.field(key) {
                Some(field) => encode_node(value, &field.node, schema, out),
                None => write_value(out, value),
            }
        }
        members.close();
        return;
    }
    let given = FieldValues::of(map, ty);
    for (index, field) in ty.fields.iter().enumerate() {
        let value = given.get(index, field).filter(|value| !value.is_null());
        match (field.presence, value) {
            (Presence::AsGiven | Presence::Always, Some(value)) => {
                encode_node(value, &field.node, schema, members.key(&field.name));
            }
            (Presence::OmitEmpty, Some(value)) => {
                if !is_zero(value, &field.node, schema) {
                    encode_node(value, &field.node, schema, members.key(&field.name));
                }
            }
            (Presence::Always, None) => write_zero(field, schema, members.key(&field.name)),
            (Presence::AsGiven | Presence::OmitEmpty, None) => {}
        }
    }
    members.close();
}

/// The members of an object by field. A type has many fields and an object few of them, so the members
/// are looked up among the fields and not the other way round.
struct FieldValues<'a> {
    map: &'a Map,
    fields: Vec<Option<&'a Value>>,
}

/// Below this, a search for each field is as fast.
const FIELD_VALUES_MIN: usize = 6;

impl<'a> FieldValues<'a> {
    fn of(map: &'a Map, ty: &Type) -> Self {
        let mut fields = Vec::new();
        if ty.fields.len() >= FIELD_VALUES_MIN {
            fields.resize(ty.fields.len(), None);
            for (key, value) in map.iter() {
                if let Some(index) = ty.field_index(key) {
                    fields[index] = Some(value);
                }
            }
        }
        Self { map, fields }
    }

    fn get(&self, index: usize, field: &Field) -> Option<&'a Value> {
        match self.fields.get(index) {
            Some(value) => *value,
            None => self.map.get(&field.name),
        }
    }
}

fn write_list(items: &[Value], out: &mut Vec<u8>, write: impl Fn(&Value, &mut Vec<u8>)) {
    out.push(b'[');
    for (at, item) in interruptible(items.iter().enumerate()) {
        if at > 0 {
            out.push(b',');
        }
        write(item, out);
    }
    out.push(b']');
}

/// What Go prints for a field that was never set.
fn write_zero(field: &Field, schema: &Schema, out: &mut Vec<u8>) {
    if field.pointer {
        out.extend_from_slice(b"null");
        return;
    }
    match &field.node.kind {
        NodeType::Object(id) => write_struct(&Map::new(), schema.get(*id), schema, out),
        NodeType::Bool => out.extend_from_slice(b"false"),
        NodeType::Int32 | NodeType::Int64 | NodeType::Double | NodeType::IntOrString => {
            out.push(b'0');
        }
        NodeType::String => out.extend_from_slice(b"\"\""),
        NodeType::Duration => out.extend_from_slice(b"\"0s\""),
        NodeType::Quantity => out.extend_from_slice(b"\"0\""),
        NodeType::Any
        | NodeType::Raw
        | NodeType::AnyObject
        | NodeType::Bytes
        | NodeType::Time
        | NodeType::MicroTime
        | NodeType::List(..)
        | NodeType::Map(_)
        | NodeType::SchemaOrBool(_)
        | NodeType::SchemaOrArray(_)
        | NodeType::SchemaOrStringArray(_) => out.extend_from_slice(b"null"),
    }
}

/// Is this what Go's `omitempty` and `omitzero` leave out?
fn is_zero(value: &Value, node: &Node, schema: &Schema) -> bool {
    match (&node.kind, value) {
        (_, Value::Null) => true,
        (
            NodeType::Any
            | NodeType::Raw
            | NodeType::SchemaOrBool(_)
            | NodeType::SchemaOrArray(_)
            | NodeType::SchemaOrStringArray(_),
            _,
        )
        // The empty text is a value of its own there.
        | (NodeType::IntOrString, Value::String(_))
        | (_, Value::Raw(_)) => false,
        (NodeType::Quantity, Value::String(text)) => {
            Quantity::parse(text).is_ok_and(|quantity| quantity.is_zero())
        }
        (NodeType::Duration, Value::String(text)) => text == "0s",
        (NodeType::Object(id), Value::Object(map)) => {
            let ty = schema.get(*id);
            map.iter().all(|(key, value)| match ty.field(key) {
                Some(field) if field.pointer => value.is_null(),
                Some(field) => is_zero(value, &field.node, schema),
                None => false,
            })
        }
        (_, Value::Bool(value)) => !value,
        (_, Value::Number(Number::Int(number))) => *number == 0,
        (_, Value::Number(Number::Float(number))) => *number == 0.0,
        (_, Value::String(text)) => text.is_empty(),
        (_, Value::Array(items)) => items.is_empty(),
        (_, Value::Object(map)) => map.is_empty(),
    }
}

/// Writes the punctuation of an object.
struct ObjectWriter<'a> {
    out: &'a mut Vec<u8>,
    separator: u8,
}

impl<'a> ObjectWriter<'a> {
    fn open(out: &'a mut Vec<u8>) -> Self {
        Self { out, separator: b'{' }
    }

    /// Begins a member; its value comes next.
    fn key(&mut self, key: &str) -> &mut Vec<u8> {
        self.out.push(self.separator);
        self.separator = b',';
        write_string(self.out, key);
        self.out.push(b':');
        self.out
    }

    fn close(self) {
        if self.separator == b'{' {
            self.out.push(b'{');
        }
        self.out.push(b'}');
    }
}
