//! Metadata only, in protobuf: what metadata informers and the garbage collector of kube-controller-manager read. It is made
//! from the metadata in the cached JSON, without decoding an object, and streamed.

use std::sync::Arc;

use bytes::Bytes;
use codec::protobuf;
use meta::ApiError;
use store::Entry;

use crate::{
    Kind, Payload,
    kind::SLOT_PROTOBUF,
    list::{Items, ListHead},
    protobuf_response::{self, item_len, list_chunks, not_encoded},
    resource_request::{Engine, ResourceRequest},
    response_format::{ResponseFormat, yield_after},
};

/// A `PartialObjectMetadata` in its envelope.
pub(crate) fn sealed(
    engine: &Engine,
    format: &ResponseFormat,
    kind: &Kind,
    entry: &Entry,
) -> Result<Bytes, ApiError> {
    let message = match shared(kind, entry) {
        Some(message) => message,
        None => made(engine, kind, entry)?,
    };
    Ok(protobuf_response::seal(&format.metadata_kind("PartialObjectMetadata"), &message))
}

/// A list of them. A message begins with its length, so all items are made before the first byte is sent. Only the first few
/// are kept until then; the others are made again chunk by chunk, so that a list of any size costs little memory.
pub(crate) async fn list(
    request: &ResourceRequest<'_>,
    format: &ResponseFormat,
    head: &ListHead,
    found: Items,
) -> Result<Payload, ApiError> {
    let (engine, kind) = (request.engine, request.kind);
    let mut items = Vec::new();
    let (mut item_bytes, mut kept_bytes, mut costly) = (0, 0, false);
    for entry in found {
        let mut kept = None;
        if let Some(message) = shared(kind, &entry) {
            // Not kept: it would hold the whole message of the object.
            item_bytes += item_len(&message);
        } else {
            let message = made(engine, kind, &entry)?;
            item_bytes += item_len(&message);
            kept_bytes += message.len();
            kept = (kept_bytes <= KEPT_BYTES_MAX).then_some(message);
            costly = costly || kept.is_none();
        }
        items.push((entry, kept));
        yield_after(items.len()).await?;
    }
    let items =
        MetadataItems { engine: engine.clone(), kind: kind.clone(), items: items.into_iter() };
    let gvk = format.metadata_kind("PartialObjectMetadataList");
    let chunks = list_chunks(&gvk, head, item_bytes, items);
    Ok(if costly { Payload::CostlyChunks(chunks) } else { Payload::Chunks(chunks) })
}

/// What a list keeps of its messages until it is sent: those of some thousand objects.
const KEPT_BYTES_MAX: usize = 1 << 20;

struct MetadataItems {
    engine: Arc<Engine>,
    kind: Arc<Kind>,
    /// With their messages, where these are kept.
    items: std::vec::IntoIter<(Arc<Entry>, Option<Bytes>)>,
}

impl Iterator for MetadataItems {
    type Item = Result<Bytes, ApiError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (entry, kept) = self.items.next()?;
        // Invariant: the bytes that were counted before, from wherever they come.
        if let Some(message) = kept.or_else(|| shared(&self.kind, &entry)) {
            return Some(Ok(message));
        }
        let checked = meta::cancel::check();
        Some(checked.and_then(|()| made(&self.engine, &self.kind, &entry)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}

impl ExactSizeIterator for MetadataItems {}

/// A part of the object's own message, where that is in the cache: `metadata` is the first field of both.
fn shared(kind: &Kind, entry: &Entry) -> Option<Bytes> {
    let has_internal = !kind.strategy.internal_annotations().is_empty();
    if kind.is_custom() || kind.conversion.is_some() || has_internal {
        return None;
    }
    let message = entry.cached_encoding(SLOT_PROTOBUF)?;
    let metadata = kind.schema.get(kind.ty()).field("metadata")?;
    let is_first = metadata.tag == METADATA_TAG && metadata.within.is_empty();
    let len = protobuf::first_field_len(&message, METADATA_TAG).filter(|_| is_first)?;
    Some(message.slice(..len))
}

fn made(engine: &Engine, kind: &Kind, entry: &Entry) -> Result<Bytes, ApiError> {
    let (schema, ty, _) = engine.meta_type("ObjectMeta")?;
    let stored = kind.raw_metadata(entry)?;
    let metadata = match kind.strategy.internal_annotations() {
        [] => stored,
        _ => kind.metadata(&stored)?.into_owned().into(),
    };
    let metadata = protobuf::encode_json(&metadata, engine.tables(), schema, ty)
        .map_err(|error| not_encoded(&error))?;
    let mut message = Vec::with_capacity(item_len(&metadata));
    protobuf_response::write_bytes(&mut message, u64::from(METADATA_TAG), &metadata);
    Ok(message.into())
}

/// Of `PartialObjectMetadata` and of every stored kind.
const METADATA_TAG: u32 = 1;

#[cfg(test)]
mod tests;
