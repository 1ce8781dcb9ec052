//! The frames of a watch: an event type around the bytes that the cache has.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use crate::pending::negotiate::Media;
use meta::{ApiError, Value, value};
use store::{Entry, Event};

use crate::{
    Kind,
    decode::tree,
    response::{Form, Shape, protobuf_slot, write_metadata_only},
    rest::{Engine, Rest},
    table,
};

pub(crate) const ADDED: &str = "ADDED";
pub(crate) const MODIFIED: &str = "MODIFIED";
pub(crate) const DELETED: &str = "DELETED";

/// Makes the frames of one watch.
pub(crate) struct Frames {
    kind: Arc<Kind>,
    form: Form,
    schema: Arc<schema::Schema>,
    /// The first table of a watch says what its columns are.
    columns_due: AtomicBool,
}

impl Frames {
    pub(crate) fn new(rest: &Rest<'_>, form: &Form) -> Self {
        let engine: &Engine = rest.engine;
        let mut form = form.clone();
        form.pretty = false;
        Self {
            kind: rest.kind.clone(),
            form,
            schema: engine.schema.clone(),
            columns_due: AtomicBool::new(true),
        }
    }

    pub(crate) fn content_type(&self) -> &'static str {
        self.form.media.watch_content_type()
    }

    /// An event's frame, shared with everybody who watches in the same form.
    pub(crate) fn event(&self, event: &Event, entry: &Entry, ty: &'static str) -> Bytes {
        if matches!(self.form.shape, Shape::Table(_)) {
            // Ages run and only the first table has columns: these are each watcher's own.
            return self.make(entry, ty);
        }
        let encoding = match (&self.form.shape, self.form.media) {
            (Shape::Metadata, Media::Json) => 0,
            (Shape::Metadata, _) => return self.make(entry, ty),
            (_, Media::Json) => 1,
            (_, Media::Protobuf) => 2,
            (_, Media::Yaml) => 3,
        };
        let version = usize::from(self.kind.conversion.is_some());
        let ty_at = match ty {
            ADDED => 0,
            MODIFIED => 1,
            _ => 2,
        };
        event.frame((encoding * 2 + version) * 3 + ty_at, || self.make(entry, ty))
    }

    /// An object that was there when the watch began.
    pub(crate) fn initial(&self, entry: &Entry) -> Bytes {
        self.make(entry, ADDED)
    }

    fn make(&self, entry: &Entry, ty: &str) -> Bytes {
        if self.form.media == Media::Protobuf && self.form.shape == Shape::Object {
            let raw = protobuf_slot(&self.kind, entry).unwrap_or_default();
            return crate::pending::protobuf::watch_event(ty, self.kind.gvk(), &raw).into();
        }
        let json = self.kind.view(entry);
        match &self.form.shape {
            Shape::Object => self.wrap(ty, &json),
            Shape::Metadata => {
                let mut object = Vec::with_capacity(1024);
                let metadata = &entry.json[entry.meta.0 as usize..entry.meta.1 as usize];
                write_metadata_only(&mut object, metadata);
                self.wrap(ty, &object)
            }
            Shape::Table(include) => {
                let columns = self.columns_due.swap(false, Ordering::Relaxed);
                let table = table::of_object_with(&self.kind, *include, &json, columns);
                self.wrap(ty, &table.unwrap_or_default())
            }
        }
    }

    /// Only a kind, an apiVersion and a resourceVersion: a place to resume from.
    pub(crate) fn bookmark(&self, revision: u64, initial_events_end: bool) -> Bytes {
        let mut object = value!({"metadata": {"resourceVersion": (revision.to_string())}});
        if initial_events_end {
            object.set_at(&["metadata", "annotations"], value!({"k8s.io/initial-events-end": "true"}));
        }
        let gvk = self.kind.gvk();
        object.set_at(&["kind"], gvk.kind.clone());
        object.set_at(&["apiVersion"], gvk.group_version().to_string());
        if self.form.media == Media::Protobuf && self.form.shape == Shape::Object {
            let raw = crate::pending::protobuf::encode(&object, &self.kind.schema, self.kind.ty());
            return crate::pending::protobuf::watch_event("BOOKMARK", gvk, &raw).into();
        }
        let json = self.bookmark_json(&object);
        self.wrap("BOOKMARK", &json)
    }

    fn bookmark_json(&self, object: &Value) -> Bytes {
        let mut json = Vec::new();
        codec::json::encode(object, &self.kind.schema, self.kind.ty(), &mut json);
        let shaped = match &self.form.shape {
            Shape::Object => return json.into(),
            Shape::Metadata => crate::response::metadata_only(&json),
            Shape::Table(include) => table::of_object_with(&self.kind, *include, &json, false),
        };
        shaped.unwrap_or_default()
    }

    pub(crate) fn error(&self, error: &ApiError) -> Bytes {
        let status = error.status();
        if self.form.media == Media::Protobuf {
            return crate::pending::protobuf::watch_error(&status, &self.schema).into();
        }
        self.wrap("ERROR", &status.to_json())
    }

    /// `{"type":…,"object":…}` and a newline; in protobuf the same as a framed message.
    fn wrap(&self, ty: &str, json: &[u8]) -> Bytes {
        match self.form.media {
            Media::Json => {
                let mut frame = Vec::with_capacity(json.len() + 40);
                frame.extend_from_slice(b"{\"type\":\"");
                frame.extend_from_slice(ty.as_bytes());
                frame.extend_from_slice(b"\",\"object\":");
                frame.extend_from_slice(json);
                frame.extend_from_slice(b"}\n");
                frame.into()
            }
            Media::Yaml => {
                let object = tree(json).unwrap_or_default();
                let event = value!({"type": (ty), "object": (object)});
                format!("---\n{}", crate::pending::yaml::to_string(&event)).into()
            }
            Media::Protobuf => {
                let object = tree(json).unwrap_or_default();
                let kind = object.str_at(&["kind"]).to_owned();
                let name = format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}");
                let Some(ty_id) = self.schema.by_name(&name) else { return Bytes::new() };
                let raw = crate::pending::protobuf::encode(&object, &self.schema, ty_id);
                let gvk = meta::GroupVersionKind::new("meta.k8s.io", "v1", kind);
                crate::pending::protobuf::watch_event(ty, &gvk, &raw).into()
            }
        }
    }
}
