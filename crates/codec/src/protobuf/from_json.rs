//! JSON to wire without a tree in between, for the compact JSON of cached objects. What is rare (escapes, numbers, times, wrong
//! types) becomes a small tree, which is written as any other: the bytes are the same.

use std::ops::Range;

use meta::{Str, Value};
use schema::{Field, Node, NodeType, Schema, TypeId};

use super::{
    DEPTH_MAX, ProtobufError,
    encode::Encoder,
    tables::{Message, Tables, TagTarget},
    wire::Writer,
};
use crate::{
    json::{DecodeOptions, decode_any},
    raw_object::{
        ScanError,
        tape::{Node as JsonNode, Tape},
    },
};

pub(super) struct JsonEncoder<'a, 'j> {
    encoder: Encoder<'a>,
    tape: Tape<'j>,
    /// The members and items of all containers that are being written, the innermost container's last.
    open: Vec<JsonNode<'j>>,
}

type Result<T> = std::result::Result<T, ProtobufError>;

impl From<ScanError> for ProtobufError {
    fn from(error: ScanError) -> Self {
        Self::Words(error.to_string())
    }
}

/// Writes an object.
pub(super) fn encode(
    json: &[u8],
    tables: &Tables,
    schema: &Schema,
    ty: TypeId,
    writer: &mut Writer,
) -> Result<()> {
    let encoder = Encoder { tables, schema };
    // Texts are copied as they are.
    if json.first() != Some(&b'{') || std::str::from_utf8(json).is_err() {
        return encoder.object(&tree(json)?, ty, 0, writer);
    }
    let tape = Tape::read(json)?;
    let root = tape.root();
    JsonEncoder { encoder, tape, open: Vec::new() }.object(root, ty, 0, writer)
}

impl<'a, 'j> JsonEncoder<'a, 'j> {
    fn object(
        &mut self,
        json: JsonNode<'j>,
        ty: TypeId,
        depth: usize,
        writer: &mut Writer,
    ) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(ProtobufError::TooDeep);
        }
        let (tables, schema) = (self.encoder.tables, self.encoder.schema);
        let members = self.collect(json);
        let start = members.start;
        self.message(members, tables.get(ty), &schema.get(ty).fields, depth, writer)?;
        self.open.truncate(start);
        Ok(())
    }

    fn message(
        &mut self,
        members: Range<usize>,
        table: &'a Message,
        fields: &'a [Field],
        depth: usize,
        writer: &mut Writer,
    ) -> Result<()> {
        for entry in table.entries.iter().rev() {
            match &entry.target {
                TagTarget::Embedded(table) => {
                    let start = writer.len();
                    self.message(members.clone(), table, fields, depth, writer)?;
                    writer.end_message(entry.tag, start);
                }
                TagTarget::Field(index) => {
                    let field = &fields[*index];
                    let name = field.name.as_bytes();
                    let found = self.open[members.clone()].iter().rev().find(|m| m.key == name);
                    match found.copied().filter(|member| member.value != b"null") {
                        Some(value) => self.field(field, value, depth, writer)?,
                        None => self.encoder.field(field, None, depth, writer)?,
                    }
                }
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        field: &'a Field,
        json: JsonNode<'j>,
        depth: usize,
        writer: &mut Writer,
    ) -> Result<()> {
        let (tag, node) = (field.tag, &field.node);
        match (&node.kind, json.value.first()) {
            (NodeType::List(item, _), Some(b'[')) if !node.wrapped => {
                let items = self.collect(json);
                for at in items.clone().rev() {
                    self.value(item, tag, self.open[at], &field.name, depth, writer)?;
                }
                self.open.truncate(items.start);
                Ok(())
            }
            (NodeType::Map(item), Some(b'{')) => {
                let members = self.collect(json);
                let keys = || self.open[members.clone()].iter().map(|member| member.key);
                // A key that is spelt with escapes sorts by its text.
                if keys().any(|key| key.contains(&b'\\')) || !keys().is_sorted_by(|a, b| a < b) {
                    self.open.truncate(members.start);
                    return self.encoder.field(field, Some(&tree(json.value)?), depth, writer);
                }
                for at in members.clone().rev() {
                    let (start, member) = (writer.len(), self.open[at]);
                    self.value(item, 2, member, &field.name, depth, writer)?;
                    writer.field_bytes(1, member.key);
                    writer.end_message(tag, start);
                }
                self.open.truncate(members.start);
                Ok(())
            }
            (NodeType::List(..) | NodeType::Map(_), _) => {
                self.encoder.field(field, Some(&tree(json.value)?), depth, writer)
            }
            _ => self.value(node, tag, json, &field.name, depth, writer),
        }
    }

    fn value(
        &mut self,
        node: &'a Node,
        tag: u32,
        json: JsonNode<'j>,
        name: &str,
        depth: usize,
        writer: &mut Writer,
    ) -> Result<()> {
        let start = writer.len();
        match (&node.kind, json.value) {
            (NodeType::String, [b'"', text @ .., b'"']) if !text.contains(&b'\\') => {
                writer.field_bytes(tag, text);
                return Ok(());
            }
            (NodeType::Bool, b"true") => {
                writer.field_varint(tag, 1);
                return Ok(());
            }
            (NodeType::Int32 | NodeType::Int64, digits) if is_plain_number(digits) => {
                let number = digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
                writer.field_varint(tag, number);
                return Ok(());
            }
            (NodeType::Object(ty), [b'{', ..]) => self.object(json, *ty, depth + 1, writer)?,
            (NodeType::Any | NodeType::AnyObject, text @ [b'{', ..]) if is_canonical(text) => {
                writer.field_bytes(1, text);
            }
            (_, text) => {
                return self.encoder.value(node, tag, &leaf(text)?, name, depth, writer);
            }
        }
        writer.end_message(tag, start);
        Ok(())
    }

    /// Puts the members or items of a container on top.
    fn collect(&mut self, container: JsonNode<'j>) -> Range<usize> {
        let start = self.open.len();
        self.open.extend(self.tape.children(container));
        start..self.open.len()
    }
}

/// A number that needs no arithmetic beyond that of an `i64`, spelt as our encoder does.
fn is_plain_number(digits: &[u8]) -> bool {
    match digits {
        [b'0'..=b'9'] => true,
        [b'1'..=b'9', rest @ ..] => rest.len() < 18 && rest.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// A tree of any value; a text without escapes is one already.
fn leaf(json: &[u8]) -> Result<Value> {
    match json {
        [b'"', text @ .., b'"'] if !text.contains(&b'\\') => {
            let text = std::str::from_utf8(text).map_err(|_| ScanError::Syntax(0))?;
            Ok(Value::String(Str::new(text)))
        }
        _ => tree(json),
    }
}

fn tree(json: &[u8]) -> Result<Value> {
    let decoded = decode_any(json, DecodeOptions { strict: false });
    Ok(decoded.map_err(|error| ProtobufError::Words(error.to_string()))?.value)
}

/// Whether objects of objects are spelt as our encoder would. It is enough that the answer is right for `fieldsV1` of managed
/// fields, whose keys quote keys of lists.
fn is_canonical(json: &[u8]) -> bool {
    let mut bytes = json.iter();
    let mut in_text = false;
    while let Some(byte) = bytes.next() {
        let plain = match byte {
            b'"' => {
                in_text = !in_text;
                true
            }
            b'\\' => in_text && matches!(bytes.next(), Some(b'"' | b'\\')),
            b'<' | b'>' | b'&' | 0..0x20 | 0x80.. => false,
            _ if in_text => true,
            _ => matches!(byte, b'{' | b'}' | b':' | b','),
        };
        if !plain {
            return false;
        }
    }
    !in_text
}

#[cfg(test)]
mod tests {
    use meta::{cancel::is_interruptible, growth::assert_linear};
    use proptest::prelude::*;

    use super::*;
    use crate::{
        protobuf::{encode, encode_json},
        testing::{Types, types},
    };

    /// The bytes are those of the tree.
    #[track_caller]
    fn check(types: &Types, ty: TypeId, json: &str) {
        let tables = Tables::new(&types.schema);
        let slow = encode(&tree(json.as_bytes()).unwrap(), &tables, &types.schema, ty);
        let fast = encode_json(json.as_bytes(), &tables, &types.schema, ty);
        assert_eq!(fast, slow, "{json}");
    }

    #[test]
    fn the_bytes_are_those_of_the_tree() {
        let types = types();
        let metadata = [
            "{}",
            r#"{"name":"a","uid":"u","generation":7,"creationTimestamp":"2024-02-29T12:34:56Z"}"#,
            r#"{"name":null,"labels":null,"ownerReferences":null,"creationTimestamp":null}"#,
            r#"{"labels":{"a":"b","c":"d"},"annotations":{"unknown":"here"},"finalizers":["f","g"]}"#,
            // Not as our encoder orders and spells them.
            r#"{"labels":{"c":"d","a":"b"},"name":"late"}"#,
            r#"{"labels":{"\u0061":"b","<":"\u003c\n\"\\é"},"name":"\u0000","finalizers":["\t"]}"#,
            r#"{"labels":{},"ownerReferences":[],"finalizers":[],"managedFields":[]}"#,
            r#"{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u","controller":true},{"name":"q","controller":false}]}"#,
            r#"{"managedFields":[{"manager":"m","operation":"Apply","apiVersion":"v1","time":"2024-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"k:{\"name\":\"a\\\\b\"}":{}}}}]}"#,
            r#"{"managedFields":[{"fieldsV1":{"f:<b>":{},"f:é":{},"f:n":1,"f:s":[true,null]}},{"fieldsV1":{}},{"fieldsV1":null},{}]}"#,
        ];
        for metadata in metadata {
            check(&types, types.config_map, &format!(r#"{{"metadata":{metadata}}}"#));
        }
        let objects = [
            (
                types.config_map,
                r#"{"data":{"k":"v"},"binaryData":{"b":"AAEC/w=="},"immutable":true}"#,
            ),
            (
                types.pod,
                r#"{"spec":{"volumes":[{"name":"v","hostPath":{"path":"/"}}],"containers":[]}}"#,
            ),
            (
                types.container,
                r#"{"name":"c","ports":[{"containerPort":-1}],"resources":{"limits":{"cpu":"500m"}},"livenessProbe":{"httpGet":{"port":"http"}}}"#,
            ),
            (types.lease, r#"{"spec":{"renewTime":"2024-01-01T00:00:00.123456Z","weight":1.5}}"#),
            (
                types.props,
                r#"{"items":[{"type":"x"},{}],"additionalProperties":false,"default":{"a":[1]}}"#,
            ),
            // Errors are the same, too.
            (types.container, r#"{"name":1}"#),
            (types.container, r#"{"ports":{}}"#),
            (types.container, r#"{"resources":{"limits":["cpu"]}}"#),
            (types.container, r#"{"resources":"all"}"#),
            (types.container, "[]"),
            (types.container, "null"),
        ];
        for (ty, json) in objects {
            check(&types, ty, json);
        }
    }

    #[test]
    fn invalid_json_is_an_error() {
        let types = types();
        let tables = Tables::new(&types.schema);
        for json in ["", "{", r#"{"a"}"#, r#"{"name":"#, r#"{"name":"x"#, r#"{"ports":[1}"#] {
            let encoded = encode_json(json.as_bytes(), &tables, &types.schema, types.container);
            assert!(encoded.is_err(), "{json}: {encoded:?}");
        }
    }

    #[test]
    fn nesting_is_bounded_and_the_work_is_linear_and_interruptible() {
        let types = types();
        let tables = Tables::new(&types.schema);
        let deep = format!("{}{{}}{}", r#"{"properties":{"a":"#.repeat(500), "}}".repeat(500));
        let encoded = encode_json(deep.as_bytes(), &tables, &types.schema, types.props);
        assert_eq!(encoded, Err(ProtobufError::TooDeep));

        let owners = |n: usize| {
            let owners = r#"{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"},"#.repeat(n);
            let labels: Vec<String> = (0..n).map(|i| format!(r#""{i:07}":"v""#)).collect();
            let (owners, labels) = (owners.trim_end_matches(','), labels.join(","));
            format!(r#"{{"metadata":{{"ownerReferences":[{owners}],"labels":{{{labels}}}}}}}"#)
        };
        let encode = |json: &String| {
            drop(encode_json(json.as_bytes(), &tables, &types.schema, types.config_map));
        };
        assert_linear("owners and labels", 2_000, owners, encode);
        assert!(is_interruptible(|| encode(&owners(2_000))));
    }

    proptest! {
        #[test]
        fn any_metadata_is_written_as_its_tree(
            texts in prop::collection::btree_map(".{0,6}", ".{0,12}", 0..5),
            fields in prop::collection::vec(r#"[a-z:\{\}"\\. <é]{0,8}"#, 0..5),
            generation in any::<i64>(),
        ) {
            let types = types();
            let object = |of: Vec<(String, Value)>| {
                Value::Object(of.into_iter().map(|(k, v)| (meta::Str::from(k), v)).collect())
            };
            let labels = texts.iter().map(|(k, v)| (k.clone(), Value::from(v.as_str()))).collect();
            let fields = fields.into_iter().map(|key| (key, Value::object())).collect();
            let metadata = object(vec![
                ("labels".to_owned(), object(labels)),
                ("generation".to_owned(), Value::from(generation)),
                ("finalizers".to_owned(), Value::Array(texts.values().map(|v| Value::from(v.as_str())).collect())),
                ("managedFields".to_owned(), Value::Array(vec![object(vec![("fieldsV1".to_owned(), object(fields))])])),
            ]);
            let value = object(vec![("metadata".to_owned(), metadata)]);
            check(&types, types.config_map, &meta::json::to_string(&value));
        }

        #[test]
        fn no_text_makes_it_panic(json in r#"[\[\]\{\}",:\\a-c0-9]{0,40}"#) {
            let types = types();
            let tables = Tables::new(&types.schema);
            for ty in [types.config_map, types.container, types.props] {
                let _ = encode_json(json.as_bytes(), &tables, &types.schema, ty);
                let member = format!(r#"{{"name":{json},"items":{json},"metadata":{json}}}"#);
                let _ = encode_json(member.as_bytes(), &tables, &types.schema, ty);
            }
        }
    }
}
