//! Kubernetes' protobuf, transcoded to and from the JSON tree over the tags in the schema.
//!
//! The bytes are those of the generated Go code: fields by tag, map keys sorted, non-pointer fields
//! even if zero. etcd holds built-in kinds in this format, so a server on the same etcd must read
//! and write exactly it.

mod decode;
mod encode;
mod from_json;
mod tables;
#[cfg(test)]
mod tests;
mod wire;

use meta::{Str, Value, limits::TooLarge};
use schema::{Schema, TypeId};
use thiserror::Error;

pub use tables::Tables;

use self::wire::{Reader, Writer};

/// Decoding errors, with the messages of the generated Go code.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProtobufError {
    #[error("unexpected EOF")]
    UnexpectedEnd,
    #[error("proto: integer overflow")]
    IntOverflow,
    #[error("proto: negative length found during unmarshaling")]
    InvalidLength,
    #[error("proto: unexpected end of group")]
    UnexpectedEndOfGroup,
    #[error("proto: illegal wireType {0}")]
    IllegalWireType(u8),
    #[error("proto: {message}: illegal tag {tag} (wire type {wire})")]
    IllegalTag { message: String, tag: i32, wire: u64 },
    #[error("proto: {0}: wiretype end group for non-group")]
    EndGroup(String),
    #[error("proto: wrong wireType = {wire_type} for field {field}")]
    WrongWireType { field: String, wire_type: u8 },
    #[error("proto: exceeded max depth of {DEPTH_MAX}")]
    TooDeep,
    #[error("proto: {0}")]
    TooLarge(#[from] TooLarge),
    #[error("empty data")]
    EmptyData,
    #[error("empty body")]
    EmptyBody,
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    )]
    NoPrefix,
    /// A value that cannot be held by its field.
    #[error("{field}: {why}")]
    Value { field: String, why: String },
    /// The same, where Go leaves it to the value to say why.
    #[error("{0}")]
    Words(String),
}

/// Messages inside of messages. Both ways recurse; the deepest real schemas need some thirty levels.
const DEPTH_MAX: usize = 200;

/// What the bytes of every object begin with.
pub const PREFIX: [u8; 4] = *b"k8s\0";

/// An object as it is on the wire and in etcd: its kind, and its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    pub api_version: Str,
    pub kind: Str,
    /// The message, or other bytes if `content_type` says so.
    pub raw: &'a [u8],
    pub content_encoding: Str,
    pub content_type: Str,
}

impl<'a> Envelope<'a> {
    /// Opens an envelope.
    pub fn open(bytes: &'a [u8]) -> Result<Self, ProtobufError> {
        if bytes.is_empty() {
            return Err(ProtobufError::EmptyData);
        }
        let body = bytes.strip_prefix(&PREFIX).ok_or(ProtobufError::NoPrefix)?;
        if body.is_empty() {
            return Err(ProtobufError::EmptyBody);
        }
        let mut envelope = Self {
            api_version: Str::default(),
            kind: Str::default(),
            raw: &[],
            content_encoding: Str::default(),
            content_type: Str::default(),
        };
        let mut reader = Reader::new(body);
        while let Some(key) = reader.key("Unknown")? {
            match key.tag {
                1 => envelope.type_meta(reader.bytes(key, "TypeMeta")?)?,
                2 => envelope.raw = reader.bytes(key, "Raw")?,
                3 => envelope.content_encoding = reader.text(key, "ContentEncoding")?,
                4 => envelope.content_type = reader.text(key, "ContentType")?,
                _ => reader.skip(key)?,
            }
        }
        Ok(envelope)
    }

    fn type_meta(&mut self, bytes: &[u8]) -> Result<(), ProtobufError> {
        let mut reader = Reader::new(bytes);
        while let Some(key) = reader.key("TypeMeta")? {
            match key.tag {
                1 => self.api_version = reader.text(key, "APIVersion")?,
                2 => self.kind = reader.text(key, "Kind")?,
                _ => reader.skip(key)?,
            }
        }
        Ok(())
    }
}

/// Puts a message into an envelope.
pub fn seal(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let head = envelope_head(api_version, kind, message.len());
    [&head[..], message, &ENVELOPE_END].concat()
}

/// What stands before a message of so many bytes in its envelope. Unlike the other messages it is written from its beginning:
/// nothing in it has to be measured, and the message is copied once.
fn envelope_head(api_version: &str, kind: &str, message_bytes: usize) -> Vec<u8> {
    let mut type_meta = Vec::with_capacity(api_version.len() + kind.len() + 4);
    wire::append_bytes(&mut type_meta, 1, api_version.as_bytes());
    wire::append_bytes(&mut type_meta, 2, kind.as_bytes());
    let mut head = Vec::with_capacity(type_meta.len() + 16);
    head.extend_from_slice(&PREFIX);
    wire::append_bytes(&mut head, 1, &type_meta);
    wire::append_length(&mut head, 2, message_bytes);
    head
}

/// The content encoding and the content type, both empty.
const ENVELOPE_END: [u8; 4] = [3 << 3 | wire::BYTES, 0, 4 << 3 | wire::BYTES, 0];

/// Writes the fields after the message: everything is written from its end to its beginning, so
/// that lengths are known when they are written.
fn begin_envelope(writer: &mut Writer) {
    writer.field_bytes(4, b"");
    writer.field_bytes(3, b"");
}

/// Writes the fields before the message.
fn end_envelope(writer: &mut Writer, api_version: &str, kind: &str) {
    let start = writer.len();
    writer.field_bytes(2, kind.as_bytes());
    writer.field_bytes(1, api_version.as_bytes());
    writer.end_message(1, start);
    writer.raw(&PREFIX);
}

/// Reads a message of a type.
pub fn decode(
    message: &[u8],
    tables: &Tables,
    schema: &Schema,
    ty: TypeId,
) -> Result<Value, ProtobufError> {
    decode::Decoder::new(tables, schema).object(message, ty, 0)
}

/// Writes a message of a type.
pub fn encode(
    value: &Value,
    tables: &Tables,
    schema: &Schema,
    ty: TypeId,
) -> Result<Vec<u8>, ProtobufError> {
    let mut writer = Writer::with_capacity(1024);
    encode::Encoder { tables, schema }.object(value, ty, 0, &mut writer)?;
    Ok(writer.finish())
}

/// Writes a message of a type, given as compact JSON: the same bytes, without a tree in between.
pub fn encode_json(
    json: &[u8],
    tables: &Tables,
    schema: &Schema,
    ty: TypeId,
) -> Result<Vec<u8>, ProtobufError> {
    let mut writer = Writer::with_capacity(json.len() + 64);
    from_json::encode(json, tables, schema, ty, &mut writer)?;
    Ok(writer.finish())
}

/// The length of a message's first field with its key, if that is a text or a message with this tag.
pub fn first_field_len(message: &[u8], tag: u32) -> Option<usize> {
    let mut reader = Reader::new(message);
    let key = reader.key("").ok()?.filter(|key| key.tag == tag)?;
    reader.bytes(key, "").ok()?;
    Some(message.len() - reader.remaining())
}

/// Reads an object with its envelope; `kind` and `apiVersion` come from there.
pub fn decode_object(
    bytes: &[u8],
    tables: &Tables,
    schema: &Schema,
    ty: TypeId,
) -> Result<Value, ProtobufError> {
    let envelope = Envelope::open(bytes)?;
    let mut object = decode(envelope.raw, tables, schema, ty)?;
    if let Some(map) = object.as_object_mut() {
        for (name, text) in [("apiVersion", envelope.api_version), ("kind", envelope.kind)] {
            if !text.is_empty() {
                map.insert(name, Value::String(text));
            }
        }
    }
    Ok(object)
}

/// Writes an object with its envelope, which gets `kind` and `apiVersion`.
pub fn encode_object(
    value: &Value,
    tables: &Tables,
    schema: &Schema,
    ty: TypeId,
) -> Result<Vec<u8>, ProtobufError> {
    let mut writer = Writer::with_capacity(1024);
    begin_envelope(&mut writer);
    let start = writer.len();
    encode::Encoder { tables, schema }.object(value, ty, 0, &mut writer)?;
    writer.end_message(2, start);
    end_envelope(&mut writer, value.str_at(&["apiVersion"]), value.str_at(&["kind"]));
    Ok(writer.finish())
}

/// An event of a watch, framed: a length of four bytes, then a `WatchEvent` around the sealed object.
pub fn watch_event(event_type: &str, sealed: &[u8]) -> Vec<u8> {
    event_around(event_type, [sealed, &[], &[]])
}

/// The same around a message that is not sealed yet, which is copied once.
pub fn watch_event_of(event_type: &str, api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let head = envelope_head(api_version, kind, message.len());
    event_around(event_type, [&head, message, &ENVELOPE_END])
}

fn event_around(event_type: &str, sealed: [&[u8]; 3]) -> Vec<u8> {
    let sealed_bytes = sealed.iter().map(|part| part.len()).sum();
    let mut extension_head = Vec::with_capacity(8);
    wire::append_length(&mut extension_head, 1, sealed_bytes);
    let mut out = Vec::with_capacity(FRAME_LENGTH_BYTES + event_type.len() + sealed_bytes + 24);
    out.extend_from_slice(&[0; FRAME_LENGTH_BYTES]);
    wire::append_bytes(&mut out, 1, event_type.as_bytes());
    wire::append_length(&mut out, 2, extension_head.len() + sealed_bytes);
    out.extend_from_slice(&extension_head);
    for part in sealed {
        out.extend_from_slice(part);
    }
    let length = (out.len() - FRAME_LENGTH_BYTES) as u32;
    out[..FRAME_LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    out
}

/// The length prefix of a watch event. Omitted on a transport that frames messages itself.
pub const FRAME_LENGTH_BYTES: usize = size_of::<u32>();
