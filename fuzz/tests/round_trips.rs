//! Every built-in type in every format and back, with random objects made from its schema.

use std::collections::HashSet;

use codec::{
    cbor,
    json::{self, DecodeOptions},
    protobuf, yaml,
};
use fuzz::{Objects, Random, definitions, tables};
use meta::Value;
use schema::{Node, NodeType, Schema, Type, TypeId};

/// Objects of each type. Together they set every field, which is checked.
const ROUNDS: u64 = 6;

fn to_json(value: &Value, ty: TypeId) -> String {
    let mut out = Vec::new();
    json::encode(value, &definitions().schema, ty, &mut out);
    String::from_utf8(out).expect("JSON is UTF-8")
}

#[track_caller]
fn from_json(text: &str, ty: TypeId) -> Value {
    let decoded =
        json::decode(text.as_bytes(), &definitions().schema, ty, DecodeOptions { strict: true });
    let decoded = decoded.unwrap_or_else(|error| panic!("{error} in {text}"));
    assert!(decoded.strict.is_empty(), "{:?} in {text}", decoded.strict);
    decoded.value
}

fn to_protobuf(value: &Value, ty: TypeId) -> Vec<u8> {
    let bytes = protobuf::encode_object(value, tables(), &definitions().schema, ty);
    bytes.unwrap_or_else(|error| panic!("{error} in {}", to_json(value, ty)))
}

fn from_protobuf(bytes: &[u8], ty: TypeId) -> Value {
    let value = protobuf::decode_object(bytes, tables(), &definitions().schema, ty);
    value.unwrap_or_else(|error| panic!("{error} in {}", bytes.escape_ascii()))
}

/// Some types are only known to JSON.
fn has_protobuf(ty: &Type) -> bool {
    ty.fields.is_empty() || ty.fields.iter().any(|field| field.tag != 0)
}

/// Runs a check on a few objects of each type, and returns which fields they had.
fn with_objects(settled: bool, check: impl Fn(&Type, TypeId, &Value)) -> HashSet<(TypeId, usize)> {
    let schema = &definitions().schema;
    let mut seen = HashSet::new();
    for (id, ty) in schema.types() {
        for round in 0..ROUNDS {
            let mut random = Random::new(u64::from(id.0) << 8 | round);
            // The first has every field at the top, so that none is left out.
            let top_percent = if round == 0 { 100 } else { 50 };
            let objects =
                Objects { settled, top_percent, filled_percent: 20, ..Objects::new(schema) };
            let object = objects.object(id, &mut random);
            note_fields(&object, id, schema, &mut seen);
            check(ty, id, &object);
        }
    }
    seen
}

fn note_fields(object: &Value, id: TypeId, schema: &Schema, seen: &mut HashSet<(TypeId, usize)>) {
    let Some(map) = object.as_object() else { return };
    let ty = schema.get(id);
    for (name, value) in map.iter() {
        let Some(index) = ty.field_index(name) else { continue };
        seen.insert((id, index));
        note_node(value, &ty.fields[index].node, schema, seen);
    }
}

fn note_node(value: &Value, node: &Node, schema: &Schema, seen: &mut HashSet<(TypeId, usize)>) {
    match (&node.kind, value) {
        (
            NodeType::Object(id) | NodeType::SchemaOrBool(id) | NodeType::SchemaOrArray(id),
            value,
        ) => {
            note_fields(value, *id, schema, seen);
        }
        (NodeType::List(item, _), Value::Array(items)) => {
            for value in items {
                note_node(value, item, schema, seen);
            }
        }
        (NodeType::Map(item), Value::Object(map)) => {
            map.iter().for_each(|(_, value)| note_node(value, item, schema, seen));
        }
        _ => {}
    }
}

#[test]
fn json_to_protobuf_and_back_is_the_same_json() {
    let seen = with_objects(true, |ty, id, object| {
        let text = to_json(object, id);
        let read = from_json(&text, id);
        assert_eq!(to_json(&read, id), text, "{}: JSON alone", ty.name);
        if has_protobuf(ty) {
            let message = to_protobuf(&read, id);
            assert_eq!(to_json(&from_protobuf(&message, id), id), text, "{}", ty.name);
        }
    });
    let schema = &definitions().schema;
    let missed: Vec<String> = schema
        .types()
        .flat_map(|(id, ty)| (0..ty.fields.len()).map(move |index| (id, ty, index)))
        .filter(|(id, _, index)| !seen.contains(&(*id, *index)))
        .filter(|(_, ty, index)| ty.fields[*index].tag != 0)
        .map(|(_, ty, index)| format!("{}.{}", ty.name, ty.fields[index].name))
        .collect();
    assert!(missed.is_empty(), "fields that no object had: {missed:?}");
}

/// Empty lists, nulls and all: what protobuf can't tell from nothing may be lost once, and nothing after that.
#[test]
fn protobuf_to_json_and_back_is_the_same_bytes() {
    with_objects(false, |ty, id, object| {
        if !has_protobuf(ty) {
            return;
        }
        let message = to_protobuf(&from_json(&to_json(object, id), id), id);
        let read = from_protobuf(&message, id);
        assert!(to_protobuf(&read, id) == message, "{}: directly", ty.name);
        let text = to_json(&read, id);
        assert!(to_protobuf(&from_json(&text, id), id) == message, "{}: by way of {text}", ty.name);
    });
}

#[test]
fn cbor_and_yaml_are_the_same_json_too() {
    with_objects(true, |ty, id, object| {
        let text = to_json(object, id);
        let read = from_json(&text, id);
        let document = cbor::encode_typed(&read, &definitions().schema, id);
        let tree = cbor::decode(&document).unwrap_or_else(|error| panic!("{error}: {text}"));
        let again = from_json(&meta::json::to_string(&tree), id);
        assert_eq!(to_json(&again, id), text, "{}: CBOR", ty.name);
        // Written as Go does it, where the first two end a line, and read by YAML 1.2, where they don't. The last is a key
        // that Go writes plainly and reads as a merge.
        if ["\\u2028", "\\u2029", "\\u003c\\u003c"].iter().any(|odd| text.contains(odd)) {
            return;
        }
        let document = yaml::emit(&read);
        let options = DecodeOptions { strict: true };
        let again = yaml::decode(document.as_ref(), &definitions().schema, id, options);
        let again = again.unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(to_json(&again.value, id), text, "{}: YAML", ty.name);
    });
}
