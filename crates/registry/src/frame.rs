//! The frames of a watch: a watch event around the bytes in the cache.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use codec::{cbor, negotiate::MediaType, protobuf};
use meta::{ApiError, Value, value};
use schema::{Schema, TypeId};
use store::{Entry, Event};

use crate::{
    Kind,
    decode::tree,
    protobuf_metadata, protobuf_response,
    resource_request::{Engine, ResourceRequest},
    response_format::{Projection, ResponseFormat, write_metadata_of},
    table::{self, IncludeObject},
};

pub(crate) const ADDED: &str = "ADDED";
pub(crate) const MODIFIED: &str = "MODIFIED";
pub(crate) const DELETED: &str = "DELETED";
const ERROR: &str = "ERROR";

/// Makes the frames of one watch.
pub(crate) struct Frames {
    kind: Arc<Kind>,
    format: ResponseFormat,
    engine: Arc<Engine>,
    /// Only the first table of a watch has column definitions.
    columns_due: AtomicBool,
    /// Frames are WebSocket messages, which need no length prefix.
    messages: bool,
}

impl Frames {
    pub(crate) fn new(request: &ResourceRequest<'_>, format: &ResponseFormat) -> Self {
        let mut format = format.clone();
        format.pretty = false;
        Self {
            kind: request.kind.clone(),
            format,
            engine: request.engine.clone(),
            columns_due: AtomicBool::new(true),
            messages: request.websocket,
        }
    }

    pub(crate) fn kind(&self) -> &Arc<Kind> {
        &self.kind
    }

    pub(crate) fn content_type(&self) -> &'static str {
        self.format.media_type.stream_name()
    }

    /// Whether every frame is sent on its own.
    pub(crate) fn are_messages(&self) -> bool {
        self.messages
    }

    /// A frame as it is sent: a WebSocket message has no length prefix.
    pub(crate) fn finish(&self, frame: Bytes) -> Bytes {
        match self.format.media_type {
            MediaType::Protobuf if self.messages => frame.slice(protobuf::FRAME_LENGTH_BYTES..),
            _ => frame,
        }
    }

    /// The frame of an event, shared by all watchers with the same format.
    pub(crate) fn event(
        &self,
        event: &Event,
        entry: &Entry,
        ty: &'static str,
    ) -> Result<Bytes, ApiError> {
        if matches!(self.format.projection, Projection::Table(_)) || self.format.is_beta() {
            // Not shared: ages change and only the first table has columns.
            return self.make(entry, ty);
        }
        let encoding = match (&self.format.projection, self.format.media_type) {
            (Projection::Metadata, MediaType::Json) => 0,
            (Projection::Object, MediaType::Json) => 1,
            (Projection::Object, MediaType::Protobuf) => 2,
            (Projection::Metadata, MediaType::Protobuf) => 3,
            _ => return self.make(entry, ty),
        };
        let ty_at = match ty {
            ADDED => 0,
            MODIFIED => 1,
            _ => 2,
        };
        let number = (self.kind.version_number() * 4 + encoding) * 3 + ty_at;
        event.try_frame(number, || self.make(entry, ty))
    }

    /// An initial event.
    pub(crate) fn initial(&self, entry: &Entry) -> Result<Bytes, ApiError> {
        self.make(entry, ADDED)
    }

    fn make(&self, entry: &Entry, ty: &str) -> Result<Bytes, ApiError> {
        if self.format.media_type == MediaType::Protobuf
            && self.format.projection == Projection::Object
        {
            let message = protobuf_response::message(&self.engine, &self.kind, entry)?;
            let gvk = self.kind.gvk();
            let version = gvk.group_version().to_string();
            return Ok(protobuf::watch_event_of(ty, &version, &gvk.kind, &message).into());
        }
        if self.format.is_metadata_as_protobuf() {
            let sealed = protobuf_metadata::sealed(&self.engine, &self.format, &self.kind, entry)?;
            return Ok(protobuf::watch_event(ty, &sealed).into());
        }
        match &self.format.projection {
            Projection::Object => {
                let json = self.kind.view(entry)?;
                self.wrap_typed(ty, &json, &self.kind.schema, self.kind.ty())
            }
            Projection::Metadata => {
                let mut object = Vec::with_capacity(1024);
                write_metadata_of(&mut object, &self.kind, entry)?;
                self.wrap(ty, &self.format.in_version(object.into()))
            }
            Projection::Table(include) => {
                let json = self.kind.view(entry)?;
                let columns = self.columns_due.swap(false, Ordering::Relaxed);
                let table =
                    table::of_object_with(&self.engine, &self.kind, *include, &json, columns)?;
                self.wrap(ty, &self.format.in_version(table))
            }
        }
    }

    /// A bookmark: an object with kind, apiVersion and resourceVersion only.
    pub(crate) fn bookmark(
        &self,
        revision: u64,
        initial_events_end: bool,
    ) -> Result<Bytes, ApiError> {
        let mut object = value!({"metadata": {"resourceVersion": (revision.to_string())}});
        if initial_events_end {
            object.set_at(
                &["metadata", "annotations"],
                value!({"k8s.io/initial-events-end": "true"}),
            );
        }
        let gvk = self.kind.gvk();
        object.set_at(&["kind"], gvk.kind.clone());
        object.set_at(&["apiVersion"], gvk.group_version().to_string());
        let json = self.bookmark_json(&object, initial_events_end)?;
        match self.format.projection {
            Projection::Object => {
                self.wrap_typed("BOOKMARK", &json, &self.kind.schema, self.kind.ty())
            }
            _ => self.wrap("BOOKMARK", &self.format.in_version(json)),
        }
    }

    fn bookmark_json(&self, object: &Value, ends_initial_events: bool) -> Result<Bytes, ApiError> {
        let json = self.kind.encode(object);
        match &self.format.projection {
            Projection::Object => Ok(json),
            Projection::Metadata => crate::response_format::metadata_only(&self.kind, &json),
            Projection::Table(include) => {
                let columns = self.columns_due.swap(false, Ordering::Relaxed);
                // Compat: the annotation that ends the initial events is shown even if no object is.
                let include = match include {
                    IncludeObject::None if ends_initial_events => IncludeObject::Metadata,
                    include => *include,
                };
                table::of_object_with(&self.engine, &self.kind, include, &json, columns)
            }
        }
    }

    /// Needs no schema, so that an object that cannot be encoded can be reported too.
    pub(crate) fn error(&self, error: &ApiError) -> Bytes {
        let status = error.status();
        let encoded = || codec::status::encode_as(&status, self.format.media_type, false).body;
        match self.format.media_type {
            MediaType::Protobuf => protobuf::watch_event(ERROR, &encoded()).into(),
            MediaType::Cbor => cbor::watch_event(ERROR, &encoded()).into(),
            MediaType::Json | MediaType::Yaml => wrap_json(ERROR, &status.to_json()),
        }
    }

    /// A frame around an object of `meta.k8s.io`; the JSON names its kind.
    fn wrap(&self, ty: &str, json: &[u8]) -> Result<Bytes, ApiError> {
        if self.format.media_type == MediaType::Json {
            return Ok(wrap_json(ty, json));
        }
        let object = tree(json)?;
        let (schema, ty_id, _) = self.engine.meta_type(object.str_at(&["kind"]))?;
        self.wrap_typed(ty, json, schema, ty_id)
    }

    fn wrap_typed(
        &self,
        ty: &str,
        json: &[u8],
        schema: &Schema,
        ty_id: TypeId,
    ) -> Result<Bytes, ApiError> {
        Ok(match self.format.media_type {
            MediaType::Protobuf => {
                let sealed = protobuf_response::seal_json(&self.engine, schema, ty_id, json)?;
                protobuf::watch_event(ty, &sealed).into()
            }
            MediaType::Cbor => {
                let object = tree(json)?;
                cbor::watch_event(ty, &cbor::encode_typed(&object, schema, ty_id)).into()
            }
            MediaType::Json | MediaType::Yaml => wrap_json(ty, json),
        })
    }
}

/// `{"type":…,"object":…}` and a newline.
fn wrap_json(ty: &str, json: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(json.len() + 40);
    frame.extend_from_slice(b"{\"type\":\"");
    frame.extend_from_slice(ty.as_bytes());
    frame.extend_from_slice(b"\",\"object\":");
    frame.extend_from_slice(json);
    frame.extend_from_slice(b"}\n");
    frame.into()
}
