//! Response formats: the media type, and object, table or metadata only.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use codec::{
    cbor,
    negotiate::{
        self, Accepted, Endpoint, MediaType, MetaVersion, NegotiateError, Offered, Transform,
    },
    raw_object::{self, FieldSet},
};
use http::header::ACCEPT;
use meta::{ApiError, GroupVersionKind, Status, Value};
use store::{Entry, append};

use crate::{
    Kind, Payload, ResourceResponse, audit,
    decode::tree,
    kind::SLOT_JSON_PIECE,
    list::{Chunks, Items, ListHead, ListResult},
    protobuf_metadata, protobuf_response,
    resource_request::ResourceRequest,
    table::{self, IncludeObject, TableWriter},
};

/// The negotiated format, decided before any work is done.
#[derive(Clone, Debug)]
pub(crate) struct ResponseFormat {
    pub(crate) media_type: MediaType,
    pub(crate) projection: Projection,
    pub(crate) pretty: bool,
    /// The kind of `meta.k8s.io` and its version that the client requested.
    transform: Option<Transform>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Projection {
    Object,
    Table(IncludeObject),
    Metadata,
}

impl ResponseFormat {
    pub(crate) fn negotiate(request: &ResourceRequest<'_>) -> Result<Self, ApiError> {
        Self::of(request, negotiate::accept)
    }

    /// For watches: YAML cannot be streamed.
    pub(crate) fn negotiate_stream(request: &ResourceRequest<'_>) -> Result<Self, ApiError> {
        Self::of(request, negotiate::accept_stream)
    }

    fn of(
        request: &ResourceRequest<'_>,
        accept: fn(Option<&str>, Endpoint, Offered) -> Result<Accepted, NegotiateError>,
    ) -> Result<Self, ApiError> {
        let text = |name| request.headers.get(name).and_then(|value| value.to_str().ok());
        let has_columns = match request.info.subresource.as_str() {
            "" => request.kind.has_verb("list"),
            subresource => matches!(subresource, "status" | "scale"),
        };
        let endpoint = match has_columns {
            _ if request.kind.is_custom() => Endpoint::CustomResource,
            true => Endpoint::Resource,
            false => Endpoint::Tableless,
        };
        let offered = request.engine.options.offered;
        let accepted = accept(text(ACCEPT), endpoint, offered).map_err(|error| match error {
            // Lists and watches share a route, whose error names all media types.
            NegotiateError::NotRepresentable(_)
                if matches!(request.info.verb.as_str(), "list" | "watch") =>
            {
                let names = negotiate::names_of_collection(offered);
                let error = NegotiateError::NotRepresentable(names);
                ApiError::NotRepresentable(error.to_string())
            }
            NegotiateError::NotRepresentable(_) => ApiError::NotRepresentable(error.to_string()),
            _ => ApiError::NotAcceptable(error.to_string()),
        })?;
        let projection = match accepted.transform {
            None => Projection::Object,
            Some(Transform::Table(_)) => Projection::Table(IncludeObject::read(request.query)?),
            Some(Transform::PartialObjectMetadata(_) | Transform::PartialObjectMetadataList(_)) => {
                Projection::Metadata
            }
        };
        let pretty = accepted.pretty
            || negotiate::is_pretty(request.query.get("pretty"), text(http::header::USER_AGENT));
        Ok(Self {
            media_type: accepted.media_type,
            projection,
            pretty,
            transform: accepted.transform,
        })
    }

    /// Sets the requested version of `meta.k8s.io`.
    pub(crate) fn in_version(&self, json: Bytes) -> Bytes {
        // Quotes in strings are escaped, so this cannot be part of a string.
        const V1: &[u8] = br#""apiVersion":"meta.k8s.io/v1""#;
        if !self.is_beta() {
            return json;
        }
        let mut out = Vec::with_capacity(json.len() + 64);
        let mut rest = &json[..];
        while let Some(at) = rest.windows(V1.len()).position(|window| window == V1) {
            out.extend_from_slice(&rest[..at + V1.len() - 1]);
            out.extend_from_slice(b"beta1\"");
            rest = &rest[at + V1.len()..];
        }
        out.extend_from_slice(rest);
        out.into()
    }

    pub(crate) fn is_metadata_as_protobuf(&self) -> bool {
        self.media_type == MediaType::Protobuf && self.projection == Projection::Metadata
    }

    pub(crate) fn is_beta(&self) -> bool {
        let version = match self.transform {
            None => return false,
            Some(
                Transform::Table(version)
                | Transform::PartialObjectMetadata(version)
                | Transform::PartialObjectMetadataList(version),
            ) => version,
        };
        version == MetaVersion::V1Beta1
    }

    /// The kind of metadata only, in the requested version of `meta.k8s.io`.
    pub(crate) fn metadata_kind(&self, kind: &str) -> GroupVersionKind {
        let version = if self.is_beta() { "v1beta1" } else { "v1" };
        GroupVersionKind::new("meta.k8s.io", version, kind)
    }

    /// Refuses list kinds for objects and object kinds for lists.
    fn check_transform(&self, kind: &Kind, is_list: bool) -> Result<(), ApiError> {
        self.check_transform_of(is_list, || match (kind.is_custom(), is_list) {
            (true, true) => "unstructured.UnstructuredList".to_owned(),
            (true, false) => "unstructured.Unstructured".to_owned(),
            (false, true) => format!("{}.{}", kind.go_package(), kind.facts.list_kind),
            (false, false) => format!("{}.{}", kind.go_package(), kind.gvk().kind),
        })
    }

    /// The same for what is given as a type of Go.
    pub(crate) fn check_transform_of(
        &self,
        is_list: bool,
        given: impl FnOnce() -> String,
    ) -> Result<(), ApiError> {
        let (name, not) = match (self.transform, is_list) {
            (Some(Transform::PartialObjectMetadata(_)), true) => {
                ("PartialObjectMetadata", "a list")
            }
            (Some(Transform::PartialObjectMetadataList(_)), false) => {
                ("PartialObjectMetadataList", "not a list")
            }
            _ => return Ok(()),
        };
        let given = given();
        Err(ApiError::NotAcceptable(format!(
            "you requested {name}, but the requested object is {not} (*{given})"
        )))
    }

    fn answer(&self, code: u16, payload: Payload) -> ResourceResponse {
        ResourceResponse { code, content_type: self.media_type.name(), payload }
    }
}

/// One object from the cache.
pub(crate) fn entry(
    request: &ResourceRequest<'_>,
    format: &ResponseFormat,
    code: u16,
    entry: &Entry,
) -> Result<ResourceResponse, ApiError> {
    let kind = request.kind;
    if format.media_type == MediaType::Protobuf && format.projection == Projection::Object {
        if request.audit.wants_response_object() {
            audit::response_object(request, &kind.view(entry)?);
        }
        let message = protobuf_response::message(request.engine, kind, entry)?;
        return Ok(
            format.answer(code, Payload::Bytes(protobuf_response::seal(kind.gvk(), &message)))
        );
    }
    if format.is_metadata_as_protobuf() && !request.audit.wants_response_object() {
        format.check_transform(kind, false)?;
        let sealed = protobuf_metadata::sealed(request.engine, format, kind, entry)?;
        return Ok(format.answer(code, Payload::Bytes(sealed)));
    }
    json(request, format, code, kind.view(entry)?)
}

/// One object, given as JSON of the served version.
pub(crate) fn json(
    request: &ResourceRequest<'_>,
    format: &ResponseFormat,
    code: u16,
    json: Bytes,
) -> Result<ResourceResponse, ApiError> {
    let kind = request.kind;
    format.check_transform(kind, false)?;
    let projected = match &format.projection {
        Projection::Object => return typed(request, format, code, json, (&kind.schema, kind.ty())),
        Projection::Metadata => metadata_only(kind, &json)?,
        Projection::Table(include) => table::of_object(request.engine, kind, *include, &json)?,
    };
    let (schema, ty, _) = request.engine.meta_type(projection_kind(&format.projection))?;
    typed(request, format, code, format.in_version(projected), (schema, ty))
}

pub(crate) fn projection_kind(projection: &Projection) -> &'static str {
    if matches!(projection, Projection::Table(_)) { "Table" } else { "PartialObjectMetadata" }
}

/// An object of any type, given as JSON.
pub(crate) fn typed(
    request: &ResourceRequest<'_>,
    format: &ResponseFormat,
    code: u16,
    json: Bytes,
    (schema, ty): (&schema::Schema, schema::TypeId),
) -> Result<ResourceResponse, ApiError> {
    audit::response_object(request, &json);
    let bytes = match format.media_type {
        MediaType::Json => finish_json(json, format.pretty),
        MediaType::Cbor => cbor::encode_typed(&tree(&json)?, schema, ty).into(),
        MediaType::Yaml => yaml(&json)?,
        MediaType::Protobuf => protobuf_response::seal_json(request.engine, schema, ty, &json)?,
    };
    Ok(format.answer(code, Payload::Bytes(bytes)))
}

/// A `Status` as the response to a successful request.
pub(crate) fn status(
    request: &ResourceRequest<'_>,
    format: &ResponseFormat,
    status: &Status,
) -> ResourceResponse {
    audit::response_status(request, status);
    let encoded = codec::status::encode_as(status, format.media_type, format.pretty);
    format.answer(status.code, Payload::Bytes(encoded.body.into()))
}

/// A list, streamed where the format allows it.
pub(crate) async fn list(
    request: &ResourceRequest<'_>,
    format: &ResponseFormat,
    found: ListResult,
) -> Result<ResourceResponse, ApiError> {
    let kind = request.kind;
    format.check_transform(kind, true)?;
    let found = recorded(request, format, found).await?;
    let head = found.head;
    if format.media_type == MediaType::Protobuf && format.projection == Projection::Object {
        let payload = protobuf_response::list(request, &head, found.items).await?;
        return Ok(format.answer(200, payload));
    }
    if format.is_metadata_as_protobuf() {
        let payload = protobuf_metadata::list(request, format, &head, found.items).await?;
        return Ok(format.answer(200, payload));
    }
    let writer = writer(request, format, head);
    let items = match (&format.projection, kind.strategy.row_order()) {
        (Projection::Table(_), Some(order)) => in_order(found.items, order)?,
        _ => found.items,
    };
    let items = if writer.needs_prepared() { prepared(&*writer, items).await? } else { items };
    let chunks = Chunks::payload(items, writer);
    if format.media_type == MediaType::Json && !format.pretty && !format.is_beta() {
        return Ok(format.answer(200, chunks));
    }
    // Indented JSON, YAML, tables in protobuf and the old version of `meta.k8s.io` need the whole
    // list; they are requested by people, or small.
    let json = format.in_version(format.answer(200, chunks).into_bytes()?);
    let bytes = match format.media_type {
        MediaType::Yaml => yaml(&json)?,
        MediaType::Protobuf => {
            let (schema, ty, _) = request.engine.meta_type("Table")?;
            protobuf_response::seal_json(request.engine, schema, ty, &json)?
        }
        MediaType::Json => finish_json(json, format.pretty),
        MediaType::Cbor => cbor_list(request, format, &json)?,
    };
    Ok(format.answer(200, Payload::Bytes(bytes)))
}

fn writer(
    request: &ResourceRequest<'_>,
    format: &ResponseFormat,
    head: ListHead,
) -> Box<dyn ItemWriter> {
    let kind = request.kind.clone();
    match &format.projection {
        Projection::Object if kind.is_custom() => Box::new(CustomItems { kind, head }),
        Projection::Object => Box::new(TypedItems { kind, head }),
        Projection::Metadata => Box::new(MetadataItems { kind, head }),
        Projection::Table(include) => {
            Box::new(TableWriter::new(request.engine, kind, *include, head))
        }
    }
}

/// Records a list in the audit event, where the policy asks for responses. Only then the whole list
/// is in memory at once.
async fn recorded(
    request: &ResourceRequest<'_>,
    format: &ResponseFormat,
    found: ListResult,
) -> Result<ListResult, ApiError> {
    if !request.audit.wants_response_object() {
        return Ok(found);
    }
    let ListResult { items, head } = found;
    let writer = writer(request, format, head.clone());
    let entries: Vec<Arc<Entry>> = prepared(&*writer, items).await?.collect();
    let chunks = Chunks::payload(Items::of(entries.iter().cloned()), writer);
    let json = format.in_version(format.answer(200, chunks).into_bytes()?);
    audit::response_object(request, &json);
    Ok(ListResult { items: Items::of(entries), head })
}

/// Prepares all items before the first byte is sent: an item that fails later could only break off
/// a response that has begun as a 200.
async fn prepared(writer: &dyn ItemWriter, items: Items) -> Result<Items, ApiError> {
    let entries: Vec<Arc<Entry>> = items.collect();
    for (at, entry) in entries.iter().enumerate() {
        writer.prepare(entry)?;
        yield_after(at + 1).await?;
    }
    Ok(Items::of(entries))
}

/// Lets other requests run while a long list is converted or encoded, and stops when it is not wanted
/// any longer.
pub(crate) async fn yield_after(items: usize) -> Result<(), ApiError> {
    if items.is_multiple_of(YIELD_ITEMS) {
        tokio::task::yield_now().await;
    }
    meta::cancel::check()
}

const YIELD_ITEMS: usize = 64;

/// Sorts by rank; objects of the same rank stay ordered by name.
fn in_order(items: Items, order: fn(&Value) -> i64) -> Result<Items, ApiError> {
    let ranked = items.map(|entry| Ok((order(&tree(&entry.json.text())?), entry)));
    let mut ranked = ranked.collect::<Result<Vec<(i64, Arc<Entry>)>, ApiError>>()?;
    ranked.sort_by_key(|(rank, _)| *rank);
    Ok(Items::of(ranked.into_iter().map(|(_, entry)| entry)))
}

fn cbor_list(
    request: &ResourceRequest<'_>,
    format: &ResponseFormat,
    json: &[u8],
) -> Result<Bytes, ApiError> {
    let list = tree(json)?;
    let gvk = request.kind.group_version().with_kind(&request.kind.facts.list_kind);
    let mut types = request.engine.schema.types();
    let typed =
        types.find(|(_, ty)| format.projection == Projection::Object && ty.kinds.contains(&gvk));
    Ok(match typed {
        Some((ty, _)) => cbor::encode_typed(&list, &request.engine.schema, ty),
        None => cbor::encode(&list),
    }
    .into())
}

/// Writes the parts of a list body.
pub(crate) trait ItemWriter: Send + Sync {
    /// Whether [`ItemWriter::prepare`] has anything to do.
    fn needs_prepared(&self) -> bool;

    /// Makes what `item` writes, and keeps it with the entry if there is a place for it.
    fn prepare(&self, entry: &Entry) -> Result<(), ApiError>;

    /// Whether an item has to be decoded or encoded.
    fn is_costly(&self) -> bool {
        false
    }

    fn head(&self, out: &mut Vec<u8>);
    fn item(&self, entry: &Entry, first: bool, out: &mut Vec<u8>) -> Result<(), ApiError>;

    /// Where an entry keeps what `item` writes of it as a compressed piece. None: it is not kept.
    fn piece_slot(&self) -> Option<u32> {
        None
    }

    /// What `item` writes of an entry that is not the first, without keeping anything with it.
    fn piece_text(&self, entry: &Entry, out: &mut Vec<u8>) -> Result<(), ApiError> {
        self.item(entry, false, out)
    }

    /// `empty`: there was no item, and `out` ends with what the head wrote.
    fn tail(&self, empty: bool, out: &mut Vec<u8>);
}

/// Items of built-in lists leave out kind and apiVersion.
struct TypedItems {
    kind: Arc<Kind>,
    head: ListHead,
}

impl ItemWriter for TypedItems {
    fn needs_prepared(&self) -> bool {
        self.kind.conversion.is_some()
    }

    fn prepare(&self, entry: &Entry) -> Result<(), ApiError> {
        self.kind.view(entry).map(drop)
    }

    fn head(&self, out: &mut Vec<u8>) {
        write_head(
            out,
            &self.kind.facts.list_kind,
            &self.kind.group_version().to_string(),
            &self.head,
        );
        out.extend_from_slice(b",\"items\":[");
    }

    fn item(&self, entry: &Entry, first: bool, out: &mut Vec<u8>) -> Result<(), ApiError> {
        out.extend_from_slice(if first { b"{" } else { b",{" });
        if self.kind.conversion.is_none() {
            entry.json.append_to(out, entry.body_at as usize..entry.json.len());
            return Ok(());
        }
        let json = self.kind.view(entry)?;
        append(out, &json[body_at(&json)?..]);
        Ok(())
    }

    fn piece_slot(&self) -> Option<u32> {
        self.kind.conversion.is_none().then_some(SLOT_JSON_PIECE)
    }

    fn tail(&self, _empty: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(b"]}\n");
    }
}

/// Lists of custom resources have sorted keys and whole items.
struct CustomItems {
    kind: Arc<Kind>,
    head: ListHead,
}

impl ItemWriter for CustomItems {
    fn needs_prepared(&self) -> bool {
        self.kind.conversion.is_some()
    }

    fn prepare(&self, entry: &Entry) -> Result<(), ApiError> {
        self.kind.view(entry).map(drop)
    }

    fn head(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"apiVersion\":");
        meta::json::write_string(out, &self.kind.group_version().to_string());
        out.extend_from_slice(b",\"items\":[");
    }

    fn item(&self, entry: &Entry, first: bool, out: &mut Vec<u8>) -> Result<(), ApiError> {
        if !first {
            out.push(b',');
        }
        if self.kind.conversion.is_none() {
            entry.json.append_to(out, 0..entry.json.len());
            return Ok(());
        }
        append(out, &self.kind.view(entry)?);
        Ok(())
    }

    fn piece_slot(&self) -> Option<u32> {
        self.kind.conversion.is_none().then_some(SLOT_JSON_PIECE)
    }

    fn tail(&self, _empty: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(b"],\"kind\":");
        meta::json::write_string(out, &self.kind.facts.list_kind);
        out.extend_from_slice(b",\"metadata\":{\"continue\":");
        meta::json::write_string(out, &self.head.continue_token);
        if let Some(remaining) = self.head.remaining {
            out.extend_from_slice(format!(",\"remainingItemCount\":{remaining}").as_bytes());
        }
        out.extend_from_slice(
            format!(",\"resourceVersion\":\"{}\"}}}}\n", self.head.revision).as_bytes(),
        );
    }
}

/// Items with metadata only.
struct MetadataItems {
    kind: Arc<Kind>,
    head: ListHead,
}

impl ItemWriter for MetadataItems {
    fn needs_prepared(&self) -> bool {
        self.kind.is_custom()
    }

    fn prepare(&self, entry: &Entry) -> Result<(), ApiError> {
        self.kind.metadata_of(entry).map(drop)
    }

    fn head(&self, out: &mut Vec<u8>) {
        write_head(out, "PartialObjectMetadataList", META_V1, &self.head);
        out.extend_from_slice(b",\"items\":[");
    }

    fn item(&self, entry: &Entry, first: bool, out: &mut Vec<u8>) -> Result<(), ApiError> {
        if !first {
            out.push(b',');
        }
        write_metadata_of(out, &self.kind, entry)
    }

    fn tail(&self, empty: bool, out: &mut Vec<u8>) {
        if empty {
            return no_items(out);
        }
        out.extend_from_slice(b"]}\n");
    }
}

/// Compat: an empty list that Go has converted is null.
pub(crate) fn no_items(out: &mut Vec<u8>) {
    debug_assert!(out.ends_with(b"["));
    out.pop();
    out.extend_from_slice(b"null}\n");
}

pub(crate) const META_V1: &str = "meta.k8s.io/v1";

/// `{"kind":…,"apiVersion":…,"metadata":{…}` — the members follow.
pub(crate) fn write_head(out: &mut Vec<u8>, kind: &str, api_version: &str, head: &ListHead) {
    out.extend_from_slice(b"{\"kind\":");
    meta::json::write_string(out, kind);
    out.extend_from_slice(b",\"apiVersion\":");
    meta::json::write_string(out, api_version);
    out.extend_from_slice(b",\"metadata\":{");
    let version = head.version();
    if !version.is_empty() {
        out.extend_from_slice(format!("\"resourceVersion\":\"{version}\"").as_bytes());
    }
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
    out.extend_from_slice(METADATA_HEAD);
    out.extend_from_slice(metadata);
    out.push(b'}');
}

/// The same of a cached object, without a copy of its metadata where they are shown as they are stored.
pub(crate) fn write_metadata_of(
    out: &mut Vec<u8>,
    kind: &Kind,
    entry: &Entry,
) -> Result<(), ApiError> {
    if kind.lone_metadata().is_some() {
        write_metadata_only(out, &kind.metadata_of(entry)?);
        return Ok(());
    }
    out.extend_from_slice(METADATA_HEAD);
    entry.json.append_to(out, entry.metadata_range());
    out.push(b'}');
    Ok(())
}

const METADATA_HEAD: &[u8] =
    b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":";

pub(crate) fn metadata_only(kind: &Kind, json: &[u8]) -> Result<Bytes, ApiError> {
    let metadata = kind.metadata(&json[metadata_range(json)?])?;
    Ok(metadata_as_object(&metadata))
}

/// Metadata as a `PartialObjectMetadata`.
pub(crate) fn metadata_as_object(metadata: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(metadata.len() + 96);
    write_metadata_only(&mut out, metadata);
    out.into()
}

/// The range of `metadata` in an object.
pub(crate) fn metadata_range(json: &[u8]) -> Result<Range<usize>, ApiError> {
    Ok(raw_object::scan(json, &FieldSet::new([])).map_err(ApiError::internal)?.metadata)
}

/// Where the fields after kind and apiVersion begin.
fn body_at(json: &[u8]) -> Result<usize, ApiError> {
    Ok(raw_object::scan(json, &FieldSet::new([])).map_err(ApiError::internal)?.body_at)
}

/// JSON bodies end with a newline, indented ones without.
fn finish_json(json: Bytes, pretty: bool) -> Bytes {
    if pretty {
        return codec::json::indent(json.trim_ascii_end()).into();
    }
    if json.ends_with(b"\n") {
        return json;
    }
    match json.try_into_mut() {
        // Put together for this response: it has room for the newline.
        Ok(mut own) => {
            own.extend_from_slice(b"\n");
            own.freeze()
        }
        Err(shared) => {
            let mut out = Vec::with_capacity(shared.len() + 1);
            append(&mut out, &shared);
            out.push(b'\n');
            out.into()
        }
    }
}

fn yaml(json: &[u8]) -> Result<Bytes, ApiError> {
    let value = tree(json)?;
    Ok(codec::yaml::emit(&value).into())
}
