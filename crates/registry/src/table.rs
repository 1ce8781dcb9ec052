//! `Table`: rows of cells, so that `kubectl get` needs to know nothing about a kind.

use std::sync::Arc;

use bytes::Bytes;
use meta::{ApiError, FieldErrors, GroupKind, Query, Value, field::path, time::Time};
use store::Entry;

use crate::{
    Kind, decode,
    list::ListHead,
    response::{ItemWriter, META_V1, metadata_range, write_head, write_metadata_only},
};

/// What of the object a row carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    Metadata,
    Object,
}

impl Include {
    pub(crate) fn read(query: &Query) -> Result<Self, ApiError> {
        match query.text("includeObject") {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => {
                let mut errors = FieldErrors::default();
                let why = "must be 'Metadata', 'Object', 'None', or empty";
                errors.invalid(path("includeObject"), other, why);
                let kind = GroupKind::new("meta.k8s.io", "TableOptions");
                Err(ApiError::Invalid { kind, name: String::new(), errors })
            }
        }
    }
}

/// The table of a list.
pub(crate) struct TableWriter {
    kind: Arc<Kind>,
    include: Include,
    head: ListHead,
    now: Time,
}

impl TableWriter {
    pub(crate) fn new(kind: Arc<Kind>, include: Include, head: ListHead) -> Self {
        Self { kind, include, head, now: Time::now() }
    }
}

impl ItemWriter for TableWriter {
    fn head(&self, out: &mut Vec<u8>) {
        write_head(out, "Table", META_V1, &self.head);
        write_columns(out, &self.kind);
        out.extend_from_slice(b",\"rows\":[");
    }

    fn item(&self, entry: &Entry, first: bool, out: &mut Vec<u8>) {
        if !first {
            out.push(b',');
        }
        let json = self.kind.view(entry);
        let metadata = &entry.json[entry.meta.0 as usize..entry.meta.1 as usize];
        write_row(out, &self.kind, self.include, &json, metadata, self.now);
    }

    fn tail(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"]}\n");
    }
}

/// The table of one object.
pub(crate) fn of_object(kind: &Kind, include: Include, json: &[u8]) -> Result<Bytes, ApiError> {
    of_object_with(kind, include, json, true)
}

/// In a watch only the first table says what its columns are.
pub(crate) fn of_object_with(
    kind: &Kind,
    include: Include,
    json: &[u8],
    with_columns: bool,
) -> Result<Bytes, ApiError> {
    let metadata = &json[metadata_range(json)?];
    let version = decode::tree(metadata)?;
    let revision = version.str_at(&["resourceVersion"]).parse().unwrap_or_default();
    let mut out = Vec::with_capacity(json.len() / 2);
    write_head(&mut out, "Table", META_V1, &ListHead { revision, ..ListHead::default() });
    if with_columns {
        write_columns(&mut out, kind);
    } else {
        out.extend_from_slice(b",\"columnDefinitions\":null");
    }
    out.extend_from_slice(b",\"rows\":[");
    write_row(&mut out, kind, include, json, metadata, Time::now());
    out.extend_from_slice(b"]}");
    Ok(out.into())
}

fn write_columns(out: &mut Vec<u8>, kind: &Kind) {
    out.extend_from_slice(b",\"columnDefinitions\":[");
    for (at, column) in kind.columns().iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"name\":");
        meta::json::write_string(out, column.name);
        let rest = format!(
            ",\"type\":\"{}\",\"format\":\"{}\",\"description\":",
            column.kind, column.format
        );
        out.extend_from_slice(rest.as_bytes());
        meta::json::write_string(out, column.description);
        out.extend_from_slice(format!(",\"priority\":{}}}", column.priority).as_bytes());
    }
    out.push(b']');
}

fn write_row(
    out: &mut Vec<u8>,
    kind: &Kind,
    include: Include,
    json: &[u8],
    metadata: &[u8],
    now: Time,
) {
    // Cells are read off the tree: the one place on the read path that decodes.
    let object = decode::tree(json).unwrap_or_default();
    out.extend_from_slice(b"{\"cells\":[");
    for (at, column) in kind.columns().iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        (column.cell)(&object, now).write(out);
    }
    out.push(b']');
    let conditions = kind.strategy.row_conditions(&object);
    if !conditions.is_empty() {
        out.extend_from_slice(b",\"conditions\":");
        meta::json::write_value(out, &Value::Array(conditions));
    }
    out.extend_from_slice(b",\"object\":");
    match include {
        Include::None => out.extend_from_slice(b"null"),
        Include::Metadata => write_metadata_only(out, metadata),
        Include::Object => out.extend_from_slice(json),
    }
    out.push(b'}');
}
