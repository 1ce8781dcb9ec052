//! The forms in which an answer is given: media type, and object, table or metadata only.

use bytes::Bytes;
use crate::pending::negotiate::{self, Media, Transform};
use meta::{ApiError, Status};
use store::Entry;

use crate::{
    Answer, Kind, Payload,
    decode::tree,
    kind::{SLOT_CONVERTED_PROTOBUF, SLOT_PROTOBUF},
    list::{Chunks, Found, ListHead},
    rest::Rest,
    table::{self, Include, TableWriter},
};

/// What the client accepts, decided before any work is done.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    pub(crate) media: Media,
    pub(crate) shape: Shape,
    pub(crate) pretty: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Object,
    Table(Include),
    Metadata,
}

impl Form {
    pub(crate) fn negotiate(rest: &Rest<'_>) -> Result<Self, ApiError> {
        let accepted = negotiate::accept(rest.headers, rest.kind.custom)?;
        let shape = match accepted.transform {
            Transform::None => Shape::Object,
            Transform::Table => Shape::Table(Include::read(rest.query)?),
            Transform::PartialObjectMetadata => Shape::Metadata,
        };
        let pretty = negotiate::pretty(rest.query.get("pretty"), rest.headers);
        Ok(Self { media: accepted.media, shape, pretty })
    }
}

/// One object from the cache.
pub(crate) fn entry(rest: &Rest<'_>, form: &Form, code: u16, entry: &Entry) -> Result<Answer, ApiError> {
    let kind = rest.kind;
    if form.media == Media::Protobuf && form.shape == Shape::Object {
        let payload = Payload::Bytes(protobuf_of_entry(kind, entry)?);
        return Ok(Answer { code, content_type: Media::Protobuf.content_type(), payload });
    }
    json(rest, form, code, kind.view(entry))
}

/// One object given as the JSON of the served version.
pub(crate) fn json(rest: &Rest<'_>, form: &Form, code: u16, json: Bytes) -> Result<Answer, ApiError> {
    let json = match &form.shape {
        Shape::Object => json,
        Shape::Metadata => metadata_only(&json)?,
        Shape::Table(include) => table::of_object(rest.kind, *include, &json)?,
    };
    let bytes = match form.media {
        Media::Json => finish_json(json, form.pretty),
        Media::Yaml => yaml(&json)?,
        Media::Protobuf => protobuf_of_json(rest, form, &json)?,
    };
    Ok(Answer { code, content_type: form.media.content_type(), payload: Payload::Bytes(bytes) })
}

/// An object of a type that is not the kind's own (`Scale`).
pub(crate) fn typed(
    form: &Form,
    code: u16,
    json: Bytes,
    (schema, ty, gvk): (&schema::Schema, schema::TypeId, &meta::GroupVersionKind),
) -> Result<Answer, ApiError> {
    let bytes = match form.media {
        Media::Json => finish_json(json, form.pretty),
        Media::Yaml => yaml(&json)?,
        Media::Protobuf => {
            let raw = crate::pending::protobuf::encode(&tree(&json)?, schema, ty);
            crate::pending::protobuf::envelope(gvk, &raw).into()
        }
    };
    Ok(Answer { code, content_type: form.media.content_type(), payload: Payload::Bytes(bytes) })
}

/// A `Status` as the answer to a successful request.
pub(crate) fn status(rest: &Rest<'_>, form: &Form, status: &Status) -> Answer {
    let json = Bytes::from(status.to_json());
    let bytes = match form.media {
        Media::Yaml => yaml(&json).unwrap_or_else(|_| json.clone()),
        Media::Protobuf => crate::pending::protobuf::of_status(status, &rest.engine.schema).into(),
        Media::Json => finish_json(json, form.pretty),
    };
    let payload = Payload::Bytes(bytes);
    Answer { code: status.code, content_type: form.media.content_type(), payload }
}

/// A list, streamed where its form can be.
pub(crate) fn list(rest: &Rest<'_>, form: &Form, found: Found) -> Result<Answer, ApiError> {
    let (kind, head) = (rest.kind, found.head);
    let content_type = form.media.content_type();
    if form.media == Media::Protobuf {
        let payload = Payload::Bytes(protobuf_list(rest, form, &head, found.items)?);
        return Ok(Answer { code: 200, content_type, payload });
    }
    let writer: Box<dyn ItemWriter> = match &form.shape {
        Shape::Object if kind.custom => Box::new(CustomItems { kind: kind.clone(), head }),
        Shape::Object => Box::new(TypedItems { kind: kind.clone(), head }),
        Shape::Metadata => Box::new(MetadataItems { head }),
        Shape::Table(include) => Box::new(TableWriter::new(kind.clone(), *include, head)),
    };
    let chunks = Chunks::payload(found.items, writer);
    if form.media == Media::Json && !form.pretty {
        return Ok(Answer { code: 200, content_type, payload: chunks });
    }
    // Indenting and YAML need the whole; both are for people, who ask for small lists.
    let json = Answer { code: 200, content_type, payload: chunks }.into_bytes().unwrap_or_default();
    let bytes = if form.media == Media::Yaml { yaml(&json)? } else { finish_json(json, true) };
    Ok(Answer { code: 200, content_type, payload: Payload::Bytes(bytes) })
}

/// Writes the parts of a list body.
pub(crate) trait ItemWriter: Send + Sync {
    fn head(&self, out: &mut Vec<u8>);
    fn item(&self, entry: &Entry, first: bool, out: &mut Vec<u8>);
    fn tail(&self, out: &mut Vec<u8>);
}

/// Items of built-in lists leave out kind and apiVersion.
struct TypedItems {
    kind: std::sync::Arc<Kind>,
    head: ListHead,
}

impl ItemWriter for TypedItems {
    fn head(&self, out: &mut Vec<u8>) {
        write_head(out, &self.kind.facts.list_kind, &self.kind.group_version().to_string(), &self.head);
        out.extend_from_slice(b",\"items\":[");
    }

    fn item(&self, entry: &Entry, first: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(if first { b"{" } else { b",{" });
        if self.kind.conversion.is_none() {
            out.extend_from_slice(&entry.json[entry.body_at as usize..]);
            return;
        }
        let json = self.kind.view(entry);
        out.extend_from_slice(&json[crate::pending::scan::body_at(&json)..]);
    }

    fn tail(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"]}\n");
    }
}

/// Lists of custom resources have sorted keys and whole items.
struct CustomItems {
    kind: std::sync::Arc<Kind>,
    head: ListHead,
}

impl ItemWriter for CustomItems {
    fn head(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"apiVersion\":");
        meta::json::write_string(out, &self.kind.group_version().to_string());
        out.extend_from_slice(b",\"items\":[");
    }

    fn item(&self, entry: &Entry, first: bool, out: &mut Vec<u8>) {
        if !first {
            out.push(b',');
        }
        out.extend_from_slice(&self.kind.view(entry));
    }

    fn tail(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"],\"kind\":");
        meta::json::write_string(out, &self.kind.facts.list_kind);
        out.extend_from_slice(b",\"metadata\":{\"continue\":");
        meta::json::write_string(out, &self.head.continue_token);
        if let Some(remaining) = self.head.remaining {
            out.extend_from_slice(format!(",\"remainingItemCount\":{remaining}").as_bytes());
        }
        out.extend_from_slice(format!(",\"resourceVersion\":\"{}\"}}}}\n", self.head.revision).as_bytes());
    }
}

/// Objects of which only the metadata is shown.
struct MetadataItems {
    head: ListHead,
}

impl ItemWriter for MetadataItems {
    fn head(&self, out: &mut Vec<u8>) {
        write_head(out, "PartialObjectMetadataList", META_V1, &self.head);
        out.extend_from_slice(b",\"items\":[");
    }

    fn item(&self, entry: &Entry, first: bool, out: &mut Vec<u8>) {
        if !first {
            out.push(b',');
        }
        write_metadata_only(out, &entry.json[entry.meta.0 as usize..entry.meta.1 as usize]);
    }

    fn tail(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"]}\n");
    }
}

pub(crate) const META_V1: &str = "meta.k8s.io/v1";

/// `{"kind":…,"apiVersion":…,"metadata":{…}` — the members follow.
pub(crate) fn write_head(out: &mut Vec<u8>, kind: &str, api_version: &str, head: &ListHead) {
    out.extend_from_slice(b"{\"kind\":");
    meta::json::write_string(out, kind);
    out.extend_from_slice(b",\"apiVersion\":");
    meta::json::write_string(out, api_version);
    out.extend_from_slice(format!(",\"metadata\":{{\"resourceVersion\":\"{}\"", head.revision).as_bytes());
    if !head.continue_token.is_empty() {
        out.extend_from_slice(b",\"continue\":");
        meta::json::write_string(out, &head.continue_token);
    }
    if let Some(remaining) = head.remaining {
        out.extend_from_slice(format!(",\"remainingItemCount\":{remaining}").as_bytes());
    }
    out.push(b'}');
}

pub(crate) fn write_metadata_only(out: &mut Vec<u8>, metadata: &[u8]) {
    out.extend_from_slice(
        b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":",
    );
    out.extend_from_slice(metadata);
    out.push(b'}');
}

pub(crate) fn metadata_only(json: &[u8]) -> Result<Bytes, ApiError> {
    let (start, end) = crate::pending::scan::metadata(json).map_err(ApiError::internal)?;
    let mut out = Vec::with_capacity(end - start + 96);
    write_metadata_only(&mut out, &json[start..end]);
    Ok(out.into())
}

/// JSON bodies end in a newline; people get them indented.
fn finish_json(json: Bytes, pretty: bool) -> Bytes {
    let mut out = if pretty { codec::json::indent(&json) } else { json.to_vec() };
    if !out.ends_with(b"\n") {
        out.push(b'\n');
    }
    out.into()
}

fn yaml(json: &[u8]) -> Result<Bytes, ApiError> {
    let value = tree(json)?;
    Ok(crate::pending::yaml::to_string(&value).into())
}

/// The protobuf form of a cached object, made once.
fn protobuf_of_entry(kind: &Kind, entry: &Entry) -> Result<Bytes, ApiError> {
    let raw = protobuf_slot(kind, entry)?;
    Ok(crate::pending::protobuf::envelope(kind.gvk(), &raw).into())
}

/// The message of a cached object without its envelope.
pub(crate) fn protobuf_slot(kind: &Kind, entry: &Entry) -> Result<Bytes, ApiError> {
    let slot = if kind.conversion.is_none() { SLOT_PROTOBUF } else { SLOT_CONVERTED_PROTOBUF };
    let make = || {
        let object = tree(&kind.view(entry)).unwrap_or_default();
        crate::pending::protobuf::encode(&object, &kind.schema, kind.ty()).into()
    };
    Ok(entry.slot(slot, make).clone())
}

fn protobuf_of_json(rest: &Rest<'_>, form: &Form, json: &[u8]) -> Result<Bytes, ApiError> {
    let kind = rest.kind;
    let object = tree(json)?;
    let (schema, ty, gvk) = match form.shape {
        Shape::Object => (&kind.schema, kind.ty(), kind.gvk().clone()),
        _ => rest.engine.meta_type(object.str_at(&["kind"]))?,
    };
    let raw = crate::pending::protobuf::encode(&object, schema, ty);
    Ok(crate::pending::protobuf::envelope(&gvk, &raw).into())
}

/// The length of a protobuf message stands in front of it, so all items are at hand before the
/// first byte is sent: they are shared with the cache, not copied.
fn protobuf_list(
    rest: &Rest<'_>,
    form: &Form,
    head: &ListHead,
    items: crate::list::Items,
) -> Result<Bytes, ApiError> {
    let kind = rest.kind;
    if form.shape == Shape::Object {
        let raw: Vec<Bytes> = items.map(|entry| protobuf_slot(kind, &entry)).collect::<Result<_, _>>()?;
        let gvk = kind.group_version().with_kind(&kind.facts.list_kind);
        let (token, remaining) = (&head.continue_token, head.remaining);
        return Ok(crate::pending::protobuf::list(&gvk, head.revision, token, remaining, &raw).into());
    }
    let json_form = Form { media: Media::Json, pretty: false, ..form.clone() };
    let head = head.clone();
    let json = list(rest, &json_form, Found { items, head })?.into_bytes().unwrap_or_default();
    protobuf_of_json(rest, form, &json)
}
