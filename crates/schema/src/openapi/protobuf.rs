//! The binary form of gnostic (`OpenAPIv2.proto`, `OpenAPIv3.proto`), which kubectl and client-go ask
//! for. It is made of the same trees as JSON, by a table of field numbers.

pub(super) mod tables;
mod yaml;

use meta::{Map, Number, Value};

/// How a value is encoded.
pub(super) enum FieldEncoding {
    String,
    RepeatedString,
    Bool,
    SubMessage(&'static Message),
    RepeatedMessage(&'static Message),
    /// Arbitrary data, as YAML in a message of its own.
    Any,
    RepeatedAny,
    /// A scalar whose type is given by its field number.
    Scalar,
}

pub(super) enum Message {
    /// An object with known members; what begins with `x-` goes to the field `extensions`.
    Object { members: &'static [(&'static str, u32, FieldEncoding)], extensions: u32 },
    /// An object with free keys: a field that repeats pairs of a name and a value.
    NamedValues(u32, &'static Message),
    /// A reference, or else what is referred to.
    OrReference(&'static Message),
    /// A message that only wraps a field.
    Wrapper(u32, &'static FieldEncoding),
    /// Parameters have a message per location.
    Parameter,
}

pub(super) fn encode(value: &Value, message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    match (message, value) {
        (Message::Object { members, extensions }, Value::Object(map)) => {
            write_members(map, members, *extensions, &mut out);
        }
        (Message::NamedValues(number, message), Value::Object(map)) => {
            for (name, value) in map.iter() {
                write_pair(&mut out, *number, name, &encode(value, message));
            }
        }
        (Message::OrReference(message), value) => {
            if value.get("$ref").is_some() {
                write_bytes(&mut out, 2, &encode(value, &tables::REFERENCE));
            } else {
                write_bytes(&mut out, 1, &encode(value, message));
            }
        }
        (Message::Wrapper(number, encoding), value) => write(&mut out, *number, value, encoding),
        (Message::Parameter, value) => write_parameter(&mut out, value),
        _ => {}
    }
    out
}

fn write_members(
    map: &Map,
    members: &[(&str, u32, FieldEncoding)],
    extensions: u32,
    out: &mut Vec<u8>,
) {
    for (name, number, encoding) in members {
        if let Some(value) = map.get(name) {
            write(out, *number, value, encoding);
        }
    }
    for (name, value) in map.iter().filter(|(name, _)| name.starts_with("x-")) {
        write_pair(out, extensions, name, &any(value));
    }
}

/// A v2 parameter: the field numbers say whether it is in the body, the query or the path.
fn write_parameter(out: &mut Vec<u8>, value: &Value) {
    let place = match value.str_at(&["in"]) {
        "body" => {
            write_bytes(out, 1, &encode(value, &tables::V2_BODY));
            return;
        }
        "path" => (4, &tables::V2_PATH_PARAMETER),
        _ => (3, &tables::V2_QUERY_PARAMETER),
    };
    let mut inner = Vec::new();
    write_bytes(&mut inner, place.0, &encode(value, place.1));
    write_bytes(out, 2, &inner);
}

pub(super) fn write(out: &mut Vec<u8>, number: u32, value: &Value, encoding: &FieldEncoding) {
    let items = value.as_array().unwrap_or_default();
    match (encoding, value) {
        (FieldEncoding::String, Value::String(text)) => write_bytes(out, number, text.as_bytes()),
        (FieldEncoding::RepeatedString, _) => {
            let texts = items.iter().filter_map(Value::as_str);
            texts.for_each(|text| write_bytes(out, number, text.as_bytes()));
        }
        (FieldEncoding::Bool, Value::Bool(flag)) => {
            write_tag(out, number, VARINT);
            out.push(u8::from(*flag));
        }
        (FieldEncoding::SubMessage(message), value) => {
            write_bytes(out, number, &encode(value, message));
        }
        (FieldEncoding::RepeatedMessage(message), _) => {
            for item in items {
                write_bytes(out, number, &encode(item, message));
            }
        }
        (FieldEncoding::Any, value) => write_bytes(out, number, &any(value)),
        (FieldEncoding::RepeatedAny, _) => {
            for item in items {
                write_bytes(out, number, &any(item));
            }
        }
        (FieldEncoding::Scalar, value) => write_bytes(out, number, &scalar(value)),
        _ => {}
    }
}

/// Names and values are messages of two fields.
pub(super) fn write_pair(out: &mut Vec<u8>, number: u32, name: &str, value: &[u8]) {
    let mut pair = Vec::with_capacity(name.len() + value.len() + 12);
    write_bytes(&mut pair, 1, name.as_bytes());
    write_bytes(&mut pair, 2, value);
    write_bytes(out, number, &pair);
}

fn any(value: &Value) -> Vec<u8> {
    let mut any = Vec::new();
    write_bytes(&mut any, 2, yaml::document(value).as_bytes());
    any
}

/// A default of v3. There is no field for objects and lists: those are left out.
fn scalar(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match value {
        Value::Number(number) => {
            let number = match number {
                Number::Int(number) => *number as f64,
                Number::Float(number) => *number,
            };
            write_tag(&mut out, 1, FIXED64);
            out.extend_from_slice(&number.to_le_bytes());
        }
        Value::Bool(flag) => {
            write_tag(&mut out, 2, VARINT);
            out.push(u8::from(*flag));
        }
        Value::String(text) => write_bytes(&mut out, 3, text.as_bytes()),
        _ => {}
    }
    out
}

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;

pub(super) fn write_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    write_tag(out, number, BYTES);
    write_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn write_tag(out: &mut Vec<u8>, number: u32, wire_type: u32) {
    write_varint(out, u64::from(number << 3 | wire_type));
}

fn write_varint(out: &mut Vec<u8>, mut rest: u64) {
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        assert!(number < 16 && content.len() < 128, "one byte each");
        [&[number << 3 | 2, content.len() as u8], content].concat()
    }

    #[test]
    fn objects_are_written_field_by_field() {
        let info = value!({"title": "T", "version": "1"});
        let expected = [field(1, b"T"), field(2, b"1")].concat();
        assert_eq!(encode(&info, &tables::V2_INFO), expected);
    }

    #[test]
    fn parameter_location_selects_the_field_number() {
        let path = |parameter: &Value| encode(parameter, &Message::Parameter);
        let required = value!({"in": "path", "name": "a", "required": true});
        let expected = [&[1 << 3, 1][..], &field(2, b"path"), &field(4, b"a")].concat();
        assert_eq!(path(&required), field(2, &field(4, &expected)));
        let queried = value!({"in": "query", "name": "a"});
        let expected = [field(2, b"query"), field(4, b"a")].concat();
        assert_eq!(path(&queried), field(2, &field(3, &expected)));
        let body = value!({"in": "body", "name": "a"});
        assert_eq!(path(&body), field(1, &[field(2, b"a"), field(3, b"body")].concat()));
    }

    #[test]
    fn extensions_are_yaml() {
        let info = value!({"title": "T", "x-list": ["a", ""]});
        let any = field(2, b"- a\n- \"\"\n");
        let extension = field(7, &[field(1, b"x-list"), field(2, &any)].concat());
        assert_eq!(encode(&info, &tables::V2_INFO), [field(1, b"T"), extension].concat());
    }

    #[test]
    fn default_type_selects_the_field_number() {
        let cases = [
            (value!("a"), field(3, b"a")),
            (value!(true), vec![2 << 3, 1]),
            (value!(0), [&[1 << 3 | 1][..], &[0; 8]].concat()),
            (value!({}), Vec::new()),
        ];
        for (default, expected) in cases {
            assert_eq!(scalar(&default), expected);
        }
    }
}
