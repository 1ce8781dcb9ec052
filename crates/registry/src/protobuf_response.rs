//! Protobuf responses: cached messages in their envelopes.

use bytes::Bytes;
use codec::protobuf;
use meta::{ApiError, GroupVersionKind};
use store::Entry;

use crate::{
    Kind, Payload, decode,
    kind::{SLOT_CONVERTED_PROTOBUF, SLOT_PROTOBUF},
    list::ListHead,
    resource_request::Engine,
    response_format::append,
};

/// The message of a cached object without its envelope, made once. A failure is not cached.
pub(crate) fn message(engine: &Engine, kind: &Kind, entry: &Entry) -> Result<Bytes, ApiError> {
    let slot = if kind.conversion.is_none() { SLOT_PROTOBUF } else { SLOT_CONVERTED_PROTOBUF };
    let make = || {
        let object = kind.decode(&kind.view(entry)?)?;
        let message = protobuf::encode(&object, engine.tables(), &kind.schema, kind.ty());
        message.map(Bytes::from).map_err(|error| {
            tracing::error!(key = %entry.key, "cannot encode an object as protobuf: {error}");
            not_encoded(&error)
        })
    };
    entry.try_encoding(slot, make).cloned()
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

/// A list. A message begins with its length, so all items have to be encoded before the first byte
/// is sent; they are shared with the cache and copied chunk by chunk.
pub(crate) fn list(gvk: &GroupVersionKind, head: &ListHead, items: Vec<Bytes>) -> Payload {
    let item_bytes = items.iter().map(|item| item_len(item)).sum();
    Payload::Chunks(list_chunks(gvk, head, item_bytes, items.into_iter().map(Ok)))
}

/// The bytes that an item takes in a list.
pub(crate) fn item_len(item: &[u8]) -> usize {
    1 + varint_len(item.len()) + item.len()
}

/// The chunks of a list whose items take `item_bytes` together.
pub(crate) fn list_chunks(
    gvk: &GroupVersionKind,
    head: &ListHead,
    item_bytes: usize,
    items: impl ExactSizeIterator<Item = Result<Bytes, ApiError>> + Send + Sync + 'static,
) -> Box<dyn Iterator<Item = Result<Bytes, ApiError>> + Send + Sync> {
    let mut metadata = Vec::new();
    // selfLink, resourceVersion and continue are written even when empty.
    write_bytes(&mut metadata, 1, b"");
    write_bytes(&mut metadata, 2, head.version().as_bytes());
    write_bytes(&mut metadata, 3, head.continue_token.as_bytes());
    if let Some(remaining) = head.remaining {
        write_varint(&mut metadata, 4 << 3);
        write_varint(&mut metadata, remaining);
    }
    let raw_bytes = 1 + varint_len(metadata.len()) + metadata.len() + item_bytes;

    let mut start = protobuf::PREFIX.to_vec();
    let mut type_meta = Vec::new();
    write_bytes(&mut type_meta, 1, gvk.group_version().to_string().as_bytes());
    write_bytes(&mut type_meta, 2, gvk.kind.as_bytes());
    write_bytes(&mut start, 1, &type_meta);
    write_varint(&mut start, key(2));
    write_varint(&mut start, raw_bytes as u64);
    write_bytes(&mut start, 1, &metadata);
    Box::new(Chunks { start: Some(start), items: Some(items) })
}

struct Chunks<I> {
    start: Option<Vec<u8>>,
    /// None after the last.
    items: Option<I>,
}

const CHUNK_BYTES: usize = 128 * 1024;

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
            // contentEncoding and contentType, both empty.
            write_bytes(&mut chunk, 3, b"");
            write_bytes(&mut chunk, 4, b"");
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
        let Payload::Chunks(chunks) = list(&gvk, &head, items) else { panic!("not chunks") };
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
        let Payload::Chunks(chunks) = list(&gvk, &ListHead::default(), Vec::new()) else {
            panic!("not chunks")
        };
        let all: Vec<u8> = chunks.flatten().flatten().collect();
        assert_eq!(
            protobuf::Envelope::open(&all).unwrap().raw,
            b"\x0a\x06\x0a\x00\x12\x00\x1a\x00"
        );
    }
}
