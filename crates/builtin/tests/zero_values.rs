//! Is a field printed when it is empty? `zero-values.tsv` has the zero value of each type as Go encodes
//! it, in JSON and in protobuf; from the facts of our schema the same bytes have to follow.

use builtin::Definitions;
use schema::{Field, Kind, Presence, Schema, Type};

#[test]
fn zero_values_are_those_of_go() {
    let definitions = Definitions::load();
    let mut differences = Vec::new();
    let mut types = 0;
    for line in include_str!("zero-values.tsv").lines() {
        let [name, json, protobuf] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("three columns: {line}");
        };
        let id = definitions.schema.by_name(name).unwrap_or_else(|| panic!("{name} is missing"));
        let ty = definitions.schema.get(id);
        let ours = json_of(ty, &definitions.schema);
        if ours != json {
            differences.push(format!("{name}\n  Go:   {json}\n  ours: {ours}"));
        }
        let ours = hex(&protobuf_of(&ty.fields.iter().collect::<Vec<_>>(), 0, &definitions.schema));
        if ours != protobuf && protobuf != "-" {
            differences.push(format!("{name}\n  Go:   {protobuf}\n  ours: {ours}"));
        }
        types += 1;
    }
    assert!(
        differences.is_empty(),
        "{} differences:\n{}",
        differences.len(),
        differences.join("\n")
    );
    assert!(types > 900, "only {types} types");
}

fn json_of(ty: &Type, schema: &Schema) -> String {
    let fields: Vec<String> = ty
        .fields
        .iter()
        .filter(|field| field.presence == Presence::Always)
        .map(|field| format!("\"{}\":{}", field.name, json_zero(field, schema)))
        .collect();
    format!("{{{}}}", fields.join(","))
}

fn json_zero(field: &Field, schema: &Schema) -> String {
    if field.pointer {
        return "null".to_owned();
    }
    match &field.node.kind {
        Kind::Bool => "false".to_owned(),
        Kind::Int32 | Kind::Int64 | Kind::Double | Kind::IntOrString => "0".to_owned(),
        Kind::String => "\"\"".to_owned(),
        Kind::Duration => "\"0s\"".to_owned(),
        Kind::Quantity => "\"0\"".to_owned(),
        Kind::Object(id) => json_of(schema.get(*id), schema),
        _ => "null".to_owned(),
    }
}

/// `fields` are those of one message; `depth` is how far down it is in embedded ones.
fn protobuf_of(fields: &[&Field], depth: usize, schema: &Schema) -> Vec<u8> {
    let tag = |field: &Field| field.within.get(depth).copied().unwrap_or(field.tag);
    let mut sorted: Vec<&Field> = fields.iter().copied().filter(|field| tag(field) != 0).collect();
    sorted.sort_by_key(|field| tag(field));
    let mut bytes = Vec::new();
    for group in sorted.chunk_by(|a, b| tag(a) == tag(b)) {
        let field = group[0];
        if field.within.len() > depth {
            message(&mut bytes, tag(field), &protobuf_of(group, depth + 1, schema));
        } else if !field.pointer {
            protobuf_zero(&mut bytes, field, schema);
        }
    }
    bytes
}

fn protobuf_zero(bytes: &mut Vec<u8>, field: &Field, schema: &Schema) {
    match &field.node.kind {
        Kind::Bool | Kind::Int32 | Kind::Int64 => {
            varint(bytes, field.tag << 3);
            bytes.push(0);
        }
        Kind::Double => {
            varint(bytes, field.tag << 3 | 1);
            bytes.extend([0; 8]);
        }
        Kind::String | Kind::Time | Kind::MicroTime | Kind::Any => message(bytes, field.tag, &[]),
        Kind::Duration => message(bytes, field.tag, &[0x08, 0]),
        Kind::Quantity => message(bytes, field.tag, &[0x0a, 1, b'0']),
        Kind::IntOrString => message(bytes, field.tag, &[0x08, 0, 0x10, 0, 0x1a, 0]),
        Kind::Object(id) => {
            let fields: Vec<&Field> = schema.get(*id).fields.iter().collect();
            message(bytes, field.tag, &protobuf_of(&fields, 0, schema));
        }
        // Lists, maps and bytes are nil.
        _ => {}
    }
}

fn message(bytes: &mut Vec<u8>, tag: u32, content: &[u8]) {
    varint(bytes, tag << 3 | 2);
    varint(bytes, content.len() as u32);
    bytes.extend(content);
}

fn varint(bytes: &mut Vec<u8>, mut rest: u32) {
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}
