//! Protobuf responses: cached messages in their envelopes.

use std::sync::Arc;

use bytes::Bytes;
use codec::protobuf;
use http::header::ACCEPT_ENCODING;
use meta::{ApiError, GroupVersionKind};
use store::{Entry, append};

use crate::{
    Kind, ListChunks, Payload, decode,
    kind::{SLOT_CONVERTED_PROTOBUF, SLOT_PROTOBUF, SLOT_PROTOBUF_PIECE},
    list::{self, Items, ListHead},
    resource_request::{Engine, ResourceRequest},
    response_format::{ItemWriter, yield_after},
};

/// The message of a cached object without its envelope; kept if there is a place for it. A failure is not kept.
pub(crate) fn message(engine: &Engine, kind: &Kind, entry: &Entry) -> Result<Bytes, ApiError> {
    entry.try_encoding(slot(kind), || made(engine, kind, entry))
}

fn slot(kind: &Kind) -> u32 {
    if kind.conversion.is_none() { SLOT_PROTOBUF } else { SLOT_CONVERTED_PROTOBUF }
}

fn made(engine: &Engine, kind: &Kind, entry: &Entry) -> Result<Bytes, ApiError> {
    let json = kind.view(entry)?;
    let (tables, schema, ty) = (engine.tables(), &kind.schema, kind.ty());
    let message = if schema.has_raw_fields(ty) {
        protobuf::encode(&kind.decode(&json)?, tables, schema, ty)
    } else {
        protobuf::encode_json(&json, tables, schema, ty)
    };
    let message = message.map_err(|error| {
        tracing::error!(key = %entry.key, "cannot encode an object as protobuf: {error}");
        not_encoded(&error)
    })?;
    if kind.conversion.is_none() {
        entry.set_protobuf_len(message.len());
    }
    Ok(message.into())
}

/// Compat: an encoder's error is a 500 without a reason.
pub(crate) fn not_encoded(error: &protobuf::ProtobufError) -> ApiError {
    ApiError::Storage(error.to_string())
}

/// A message in its envelope.
pub(crate) fn seal(gvk: &GroupVersionKind, message: &[u8]) -> Bytes {
    protobuf::seal(&gvk.group_version().to_string(), &gvk.kind, message).into()
}

/// An object of a built-in type, given as JSON with its kind.
pub(crate) fn seal_json(
    engine: &Engine,
    schema: &schema::Schema,
    ty: schema::TypeId,
    json: &[u8],
) -> Result<Bytes, ApiError> {
    let object = decode::object(json, schema, ty)?;
    let sealed = protobuf::encode_object(&object, engine.tables(), schema, ty);
    Ok(sealed.map_err(|error| not_encoded(&error))?.into())
}

/// A list. A message begins with its length, so the lengths of all items are needed before the first byte is sent. Entries
/// remember theirs; where one does not, the object is encoded. What is not kept with an entry is encoded again when its chunk
/// is sent, so that a list of any size costs little memory.
pub(crate) async fn list(
    request: &ResourceRequest<'_>,
    head: &ListHead,
    found: Items,
) -> Result<Payload, ApiError> {
    let (engine, kind) = (request.engine, request.kind);
    // Where the pieces of the compressed list are kept, keeping the messages too would be a waste.
    let in_pieces = kind.conversion.is_none() && found.are_consecutive() && accepts_gzip(request);
    let is_consecutive = found.are_consecutive();
    let mut entries = Vec::new();
    let (mut item_bytes, mut remade_bytes) = (0, 0);
    for entry in found {
        let known = entry.protobuf_len().filter(|_| kind.conversion.is_none());
        let len = match known {
            Some(len) => len,
            None if in_pieces => made(engine, kind, &entry)?.len(),
            None => message(engine, kind, &entry)?.len(),
        };
        item_bytes += field_len(len);
        remade_bytes += if entry.has_encoding(slot(kind)) { 0 } else { len };
        entries.push(entry);
        yield_after(entries.len()).await?;
    }
    let gvk = kind.group_version().with_kind(&kind.facts.list_kind);
    let start = list_start(&gvk, head, item_bytes);
    let costly = remade_bytes > REMADE_BYTES_MAX;
    let writer = ProtobufItems { engine: engine.clone(), kind: kind.clone(), start, costly };
    let items = Items::of(entries).consecutive(is_consecutive);
    Ok(list::Chunks::payload(items, Box::new(writer)))
}

fn accepts_gzip(request: &ResourceRequest<'_>) -> bool {
    let accepted = request.headers.get(ACCEPT_ENCODING);
    accepted.is_some_and(|accepted| codec::gzip::is_accepted(accepted.as_bytes()))
}

/// So much is encoded in less time than it takes to change threads a few times.
const REMADE_BYTES_MAX: usize = 32 << 10;

struct ProtobufItems {
    engine: Arc<Engine>,
    kind: Arc<Kind>,
    start: Vec<u8>,
    costly: bool,
}

impl ItemWriter for ProtobufItems {
    fn needs_prepared(&self) -> bool {
        false
    }

    fn prepare(&self, _entry: &Entry) -> Result<(), ApiError> {
        Ok(())
    }

    fn is_costly(&self) -> bool {
        self.costly
    }

    fn head(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.start);
    }

    /// Invariant: as long as it was when it was counted, because an entry does not change.
    fn item(&self, entry: &Entry, _first: bool, out: &mut Vec<u8>) -> Result<(), ApiError> {
        write_bytes(out, 2, &message(&self.engine, &self.kind, entry)?);
        Ok(())
    }

    fn piece_slot(&self) -> Option<u32> {
        self.kind.conversion.is_none().then_some(SLOT_PROTOBUF_PIECE)
    }

    fn piece_text(&self, entry: &Entry, out: &mut Vec<u8>) -> Result<(), ApiError> {
        let message = match entry.cached_encoding(SLOT_PROTOBUF) {
            Some(message) => message,
            None => made(&self.engine, &self.kind, entry)?,
        };
        write_bytes(out, 2, &message);
        Ok(())
    }

    fn tail(&self, _empty: bool, out: &mut Vec<u8>) {
        write_list_end(out);
    }
}

/// The bytes that an item takes in a list.
pub(crate) fn item_len(item: &[u8]) -> usize {
    field_len(item.len())
}

fn field_len(len: usize) -> usize {
    1 + varint_len(len) + len
}

/// The chunks of a list whose items take `item_bytes` together.
pub(crate) fn list_chunks(
    gvk: &GroupVersionKind,
    head: &ListHead,
    item_bytes: usize,
    items: impl ExactSizeIterator<Item = Result<Bytes, ApiError>> + Send + Sync + 'static,
) -> Box<dyn ListChunks> {
    Box::new(Chunks { start: Some(list_start(gvk, head, item_bytes)), items: Some(items) })
}

/// What is in front of the items.
fn list_start(gvk: &GroupVersionKind, head: &ListHead, item_bytes: usize) -> Vec<u8> {
    let mut metadata = Vec::new();
    // selfLink, resourceVersion and continue are written even when empty.
    write_bytes(&mut metadata, 1, b"");
    write_bytes(&mut metadata, 2, head.version().as_bytes());
    write_bytes(&mut metadata, 3, head.continue_token.as_bytes());
    if let Some(remaining) = head.remaining {
        write_varint(&mut metadata, 4 << 3);
        write_varint(&mut metadata, remaining);
    }
    let raw_bytes = field_len(metadata.len()) + item_bytes;

    let mut start = protobuf::PREFIX.to_vec();
    let mut type_meta = Vec::new();
    write_bytes(&mut type_meta, 1, gvk.group_version().to_string().as_bytes());
    write_bytes(&mut type_meta, 2, gvk.kind.as_bytes());
    write_bytes(&mut start, 1, &type_meta);
    write_varint(&mut start, key(2));
    write_varint(&mut start, raw_bytes as u64);
    write_bytes(&mut start, 1, &metadata);
    start
}

/// contentEncoding and contentType, both empty.
fn write_list_end(out: &mut Vec<u8>) {
    write_bytes(out, 3, b"");
    write_bytes(out, 4, b"");
}

impl<I> ListChunks for Chunks<I> where
    I: ExactSizeIterator<Item = Result<Bytes, ApiError>> + Send + Sync
{
}

struct Chunks<I> {
    start: Option<Vec<u8>>,
    /// None after the last.
    items: Option<I>,
}

const CHUNK_BYTES: usize = 16 * 1024;

impl<I: ExactSizeIterator<Item = Result<Bytes, ApiError>>> Iterator for Chunks<I> {
    type Item = Result<Bytes, ApiError>;

    fn next(&mut self) -> Option<Self::Item> {
        let items = self.items.as_mut()?;
        let mut chunk = self.start.take().unwrap_or_default();
        while chunk.len() < CHUNK_BYTES {
            let item = match items.next() {
                None => break,
                Some(Ok(item)) => item,
                Some(Err(error)) => {
                    self.items = None;
                    return Some(Err(error));
                }
            };
            if chunk.capacity() < CHUNK_BYTES {
                chunk.reserve(CHUNK_BYTES + item.len());
            }
            write_bytes(&mut chunk, 2, &item);
        }
        if items.len() == 0 {
            self.items = None;
            write_list_end(&mut chunk);
        }
        Some(Ok(chunk.into()))
    }
}

fn key(tag: u64) -> u64 {
    tag << 3 | 2
}

pub(crate) fn write_bytes(out: &mut Vec<u8>, tag: u64, bytes: &[u8]) {
    write_varint(out, key(tag));
    write_varint(out, bytes.len() as u64);
    append(out, bytes);
}

fn write_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn varint_len(number: usize) -> usize {
    (64 - (number as u64 | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestServer;

    #[test]
    fn a_list_is_an_envelope_around_metadata_and_items() {
        let head = ListHead { revision: 300, continue_token: "c".to_owned(), remaining: Some(7) };
        let items = vec![Bytes::from(vec![1u8; 200]), Bytes::from_static(b"xyz")];
        let gvk = GroupVersionKind::new("", "v1", "PodList");
        let item_bytes = items.iter().map(|item| item_len(item)).sum();
        let chunks = list_chunks(&gvk, &head, item_bytes, items.into_iter().map(Ok));
        let all: Vec<u8> = chunks.flatten().flatten().collect();
        let envelope = protobuf::Envelope::open(&all).unwrap();
        assert_eq!((envelope.api_version.as_str(), envelope.kind.as_str()), ("v1", "PodList"));
        let mut expected = Vec::new();
        write_bytes(&mut expected, 1, b"\x0a\x00\x12\x03300\x1a\x01c\x20\x07");
        write_bytes(&mut expected, 2, &[1; 200]);
        write_bytes(&mut expected, 2, b"xyz");
        assert_eq!(envelope.raw, expected);
    }

    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

    /// A server with one good widget, and one that has a text where protobuf has a number.
    async fn with_an_unencodable_widget() -> TestServer {
        let server = TestServer::start().await;
        server.check("POST /v1/namespaces/ns/widgets", "{metadata: {name: a}}", "201").await;
        let broken = r#"{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"b","namespace":"ns"},"spec":{"replicas":"many"}}"#;
        server.write_raw("widgets", "b", broken).await;
        server
    }

    const NOT_ENCODED: &str = "500 : replicas: expected integer, found string";

    /// It was cached as empty bytes and answered as a 200.
    #[tokio::test]
    async fn an_object_that_protobuf_cannot_hold_is_a_500_each_time() {
        let server = with_an_unencodable_widget().await;
        for line in ["GET /v1/namespaces/ns/widgets/b", "GET /v1/namespaces/ns/widgets"] {
            for _ in 0..2 {
                server.send_accepting(PROTOBUF, line, "").await.check(line, NOT_ENCODED);
            }
        }
        let good = server.send_accepting(PROTOBUF, "GET /v1/namespaces/ns/widgets/a", "").await;
        assert!(good.body.starts_with(&protobuf::PREFIX), "{:?}", good.body);
    }

    /// Its pieces do not keep the messages: those behind the first chunk are made when they are compressed.
    #[tokio::test]
    async fn a_compressed_list_is_refused_for_an_object_that_protobuf_cannot_hold() {
        let server = TestServer::start().await;
        let text = "x".repeat(2 * CHUNK_BYTES);
        for name in ["a", "b"] {
            let body = format!("{{metadata: {{name: {name}, annotations: {{text: {text}}}}}}}");
            server.check("POST /v1/namespaces/ns/widgets", &body, "201").await;
        }
        let broken = format!(
            r#"{{"kind":"Widget","apiVersion":"example.com/v1","metadata":{{"name":"c","namespace":"ns","annotations":{{"text":"{text}"}}}},"spec":{{"replicas":"many"}}}}"#
        );
        server.write_raw("widgets", "c", &broken).await;
        let line = "GET /v1/namespaces/ns/widgets";
        for _ in 0..2 {
            let refused = server.try_list_compressed(PROTOBUF, line, 0).await.unwrap_err();
            assert_eq!(format!("500 : {refused}"), NOT_ENCODED);
        }
    }

    #[tokio::test]
    async fn a_watch_ends_with_an_error_at_an_object_that_protobuf_cannot_hold() {
        let server = with_an_unencodable_widget().await;
        let revision = server.revision().await;
        let stream = format!("{PROTOBUF};stream=watch");
        // Initial events, then one event after the other.
        for query in ["", &format!("?resourceVersion={}", revision - 1)] {
            let path = format!("/v1/namespaces/ns/widgets{query}");
            let mut watch = server.watch_accepting(&stream, &path).await.unwrap();
            let mut all = Vec::new();
            while let Some(bytes) = watch.next_bytes().await {
                all.extend_from_slice(&bytes);
            }
            let all = all.escape_ascii().to_string();
            assert!(all.contains(r"\x05ERROR"), "{all}");
            assert!(all.contains("replicas: expected integer, found string"), "{all}");
        }
    }

    #[test]
    fn an_empty_list_is_whole_too() {
        let gvk = GroupVersionKind::new("", "v1", "PodList");
        let chunks = list_chunks(&gvk, &ListHead::default(), 0, std::iter::empty());
        let all: Vec<u8> = chunks.flatten().flatten().collect();
        assert_eq!(
            protobuf::Envelope::open(&all).unwrap().raw,
            b"\x0a\x06\x0a\x00\x12\x00\x1a\x00"
        );
    }
}
