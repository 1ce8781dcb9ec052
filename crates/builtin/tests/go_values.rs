//! Do the facts lead to the bytes that Go writes? `zero-values.tsv` has each type, empty, in JSON and in
//! protobuf; `filled-values.tsv` has it with every field set: texts to the name of the field, numbers to
//! its tag, lists and maps to one item, and structs inside to empty ones. The names, order and presence
//! of fields, their tags and types: nothing can be wrong without showing here.

use builtin::Definitions;
use codec::protobuf::{self, Tables};
use meta::json::write_string;
use schema::{Field, Node, NodeType, Presence, Schema, Type};

#[test]
fn empty_objects_are_those_of_go() {
    check(include_str!("zero-values.tsv"), Fill::Empty);
}

#[test]
fn filled_objects_are_those_of_go() {
    check(include_str!("filled-values.tsv"), Fill::Full);
}

#[derive(Clone, Copy, PartialEq)]
enum Fill {
    Empty,
    Full,
}

fn check(table: &str, fill: Fill) {
    let Definitions { schema, .. } = Definitions::load();
    let tables = Tables::new(&schema);
    let mut differences = Vec::new();
    for line in table.lines() {
        let [name, json, protobuf] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("three columns: {line}");
        };
        let id = schema.by_name(name).unwrap_or_else(|| panic!("{name} is missing"));
        let fields = fields(schema.get(id));
        let transcoded = protobuf::encode_json(json.as_bytes(), &tables, &schema, id);
        let transcoded = transcoded.map_or_else(|error| error.to_string(), |bytes| hex(&bytes));
        for (go, ours) in [
            (json, json_object(&fields, fill, &schema)),
            (protobuf, hex(&message(&fields, 0, fill, &schema))),
            (protobuf, transcoded),
        ] {
            // A dash stands for a type that has no protobuf.
            if go != ours && go != "-" {
                differences.push(format!("{name}\n  Go:   {go}\n  ours: {ours}"));
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{} differences:\n{}",
        differences.len(),
        differences.join("\n")
    );
    assert!(table.lines().count() > 900, "the table is cut off");
}

/// All but `kind` and `apiVersion`, which were left empty.
fn fields(ty: &Type) -> Vec<&Field> {
    let is_kind = ty.fields.first().is_some_and(|field| field.name == "kind" && field.tag == 0);
    ty.fields.iter().skip(if is_kind { 2 } else { 0 }).collect()
}

fn json_object(fields: &[&Field], fill: Fill, schema: &Schema) -> String {
    let printed =
        fields.iter().filter(|field| fill == Fill::Full || field.presence == Presence::Always);
    let members: Vec<String> = printed
        .map(|field| {
            let value = match fill {
                Fill::Full => json_full(&field.node, field, schema),
                Fill::Empty if field.pointer => "null".to_owned(),
                Fill::Empty => json_zero(&field.node, schema),
            };
            format!("\"{}\":{value}", field.name)
        })
        .collect();
    format!("{{{}}}", members.join(","))
}

fn json_zero(node: &Node, schema: &Schema) -> String {
    match &node.kind {
        NodeType::Bool => "false".to_owned(),
        NodeType::Int32 | NodeType::Int64 | NodeType::Double | NodeType::IntOrString => {
            "0".to_owned()
        }
        NodeType::String => "\"\"".to_owned(),
        NodeType::Duration => "\"0s\"".to_owned(),
        NodeType::Quantity => "\"0\"".to_owned(),
        NodeType::Object(id) => json_object(&fields(schema.get(*id)), Fill::Empty, schema),
        _ => "null".to_owned(),
    }
}

fn json_full(node: &Node, field: &Field, schema: &Schema) -> String {
    match &node.kind {
        NodeType::Bool | NodeType::SchemaOrBool(_) => "true".to_owned(),
        NodeType::Int32 | NodeType::Int64 => number(field).to_string(),
        NodeType::Double => format!("{}.5", number(field)),
        NodeType::String => quote(&field.name),
        NodeType::Bytes => quote(&base64(field.name.as_bytes())),
        NodeType::Time => "\"2001-02-03T04:05:06Z\"".to_owned(),
        NodeType::MicroTime => "\"2001-02-03T04:05:06.000007Z\"".to_owned(),
        NodeType::Duration => "\"1m0s\"".to_owned(),
        NodeType::Quantity => "\"100m\"".to_owned(),
        NodeType::IntOrString => "7".to_owned(),
        // The cells of a table: Go has no type for them.
        NodeType::Any if node.definition.is_none() => quote(&field.name),
        NodeType::Any | NodeType::Raw => ANY.to_owned(),
        NodeType::AnyObject => panic!("no built-in type has such a field"),
        NodeType::Object(_) => json_zero(node, schema),
        NodeType::List(item, _) => format!("[{}]", json_full(item, field, schema)),
        NodeType::Map(item) => format!("{{\"k\":{}}}", json_full(item, field, schema)),
        NodeType::SchemaOrArray(_) => "{}".to_owned(),
        NodeType::SchemaOrStringArray(_) => "[\"a\"]".to_owned(),
    }
}

const ANY: &str = r#"{"a":1}"#;

/// `fields` are those of one message; `depth` is how far down it is in embedded ones.
fn message(fields: &[&Field], depth: usize, fill: Fill, schema: &Schema) -> Vec<u8> {
    let tag = |field: &Field| field.within.get(depth).copied().unwrap_or(field.tag);
    let mut sorted: Vec<&Field> = fields.to_vec();
    sorted.sort_by_key(|field| tag(field));
    let mut bytes = Vec::new();
    for group in sorted.chunk_by(|a, b| tag(a) == tag(b)) {
        let field = group[0];
        if field.within.len() > depth {
            delimited(&mut bytes, tag(field), &message(group, depth + 1, fill, schema));
        } else if fill == Fill::Full {
            full(&mut bytes, field.tag, &field.node, field, schema);
        } else if !field.pointer {
            zero(&mut bytes, field.tag, &field.node, schema);
        }
    }
    bytes
}

fn zero(bytes: &mut Vec<u8>, tag: u32, node: &Node, schema: &Schema) {
    match &node.kind {
        NodeType::Bool | NodeType::Int32 | NodeType::Int64 => integer(bytes, tag, 0),
        NodeType::Double => double(bytes, tag, 0.0),
        NodeType::String | NodeType::Time | NodeType::MicroTime | NodeType::Any | NodeType::Raw => {
            delimited(bytes, tag, &[]);
        }
        NodeType::Duration => delimited(bytes, tag, &[0x08, 0]),
        NodeType::Quantity => delimited(bytes, tag, b"\x0a\x010"),
        NodeType::IntOrString => delimited(bytes, tag, &[0x08, 0, 0x10, 0, 0x1a, 0]),
        NodeType::Object(id) => {
            delimited(bytes, tag, &message(&fields(schema.get(*id)), 0, Fill::Empty, schema));
        }
        // Lists, maps and bytes are nil.
        _ => {}
    }
}

fn full(bytes: &mut Vec<u8>, tag: u32, node: &Node, field: &Field, schema: &Schema) {
    let mut content = Vec::new();
    match &node.kind {
        NodeType::Bool => return integer(bytes, tag, 1),
        NodeType::Int32 | NodeType::Int64 => return integer(bytes, tag, number(field)),
        NodeType::Double => return double(bytes, tag, number(field) as f64 + 0.5),
        NodeType::List(item, _) if !node.wrapped => return full(bytes, tag, item, field, schema),
        NodeType::List(item, _) => full(&mut content, 1, item, field, schema),
        NodeType::Map(item) => {
            delimited(&mut content, 1, b"k");
            full(&mut content, 2, item, field, schema);
        }
        NodeType::String | NodeType::Bytes => content.extend(field.name.as_bytes()),
        NodeType::Time | NodeType::MicroTime => {
            integer(&mut content, 1, 981_173_106);
            integer(&mut content, 2, if matches!(node.kind, NodeType::Time) { 0 } else { 7_000 });
        }
        NodeType::Duration => integer(&mut content, 1, 60_000_000_000),
        NodeType::Quantity => delimited(&mut content, 1, b"100m"),
        NodeType::IntOrString => content.extend([0x08, 0, 0x10, 7, 0x1a, 0]),
        NodeType::Any | NodeType::Raw => delimited(&mut content, 1, ANY.as_bytes()),
        NodeType::SchemaOrBool(_) => integer(&mut content, 1, 1),
        NodeType::SchemaOrArray(id) => {
            delimited(&mut content, 1, &message(&fields(schema.get(*id)), 0, Fill::Empty, schema));
        }
        NodeType::SchemaOrStringArray(_) => delimited(&mut content, 2, b"a"),
        NodeType::Object(_) => return zero(bytes, tag, node, schema),
        NodeType::AnyObject => panic!("no built-in type has such a field"),
    }
    delimited(bytes, tag, &content);
}

fn number(field: &Field) -> u64 {
    u64::from(field.tag.max(1))
}

fn integer(bytes: &mut Vec<u8>, tag: u32, value: u64) {
    varint(bytes, u64::from(tag << 3));
    varint(bytes, value);
}

fn double(bytes: &mut Vec<u8>, tag: u32, value: f64) {
    varint(bytes, u64::from(tag << 3 | 1));
    bytes.extend(value.to_le_bytes());
}

fn delimited(bytes: &mut Vec<u8>, tag: u32, content: &[u8]) {
    varint(bytes, u64::from(tag << 3 | 2));
    varint(bytes, content.len() as u64);
    bytes.extend(content);
}

fn varint(bytes: &mut Vec<u8>, mut rest: u64) {
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

fn quote(text: &str) -> String {
    let mut quoted = Vec::new();
    write_string(&mut quoted, text);
    String::from_utf8(quoted).expect("JSON is UTF-8")
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | u32::from(*chunk.get(at).unwrap_or(&0)));
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 0x3f;
            text.push(if digit > chunk.len() { '=' } else { char::from(DIGITS[value as usize]) });
        }
    }
    text
}
