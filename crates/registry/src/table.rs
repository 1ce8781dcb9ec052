//! `Table` responses for `kubectl get`.

use std::sync::Arc;

use bytes::Bytes;
use meta::{ApiError, FieldErrors, Query, Str, Value, field::path, time::Time};
use store::Entry;

use crate::{
    Cell, Column, Engine, FieldDescriptions, Kind, decode,
    kind::SLOT_ROW,
    list::ListHead,
    resource_request::ResourceRequest,
    response_format::{
        ItemWriter, META_V1, metadata_range, no_items, write_head, write_metadata_of,
        write_metadata_only,
    },
};

/// `includeObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    None,
    Metadata,
    Object,
}

impl IncludeObject {
    pub(crate) fn read(query: &Query) -> Result<Self, ApiError> {
        match query.text("includeObject") {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => {
                let mut errors = FieldErrors::default();
                let why = "must be 'Metadata', 'Object', 'None', or empty";
                errors.invalid(path("includeObject"), other, why);
                Err(ApiError::BadRequest(format!(
                    "Unable to convert to Table as requested: {errors}"
                )))
            }
        }
    }
}

/// The table of a list.
pub(crate) struct TableWriter {
    kind: Arc<Kind>,
    include: IncludeObject,
    head: ListHead,
    columns: Bytes,
    now: Time,
}

impl TableWriter {
    pub(crate) fn new(
        engine: &Engine,
        kind: Arc<Kind>,
        include: IncludeObject,
        head: ListHead,
    ) -> Self {
        let columns = column_definitions(engine, &kind);
        Self { kind, include, head, columns, now: Time::now() }
    }
}

impl ItemWriter for TableWriter {
    fn needs_prepared(&self) -> bool {
        self.kind.conversion.is_some()
    }

    fn prepare(&self, entry: &Entry) -> Result<(), ApiError> {
        self.kind.view(entry).map(drop)
    }

    fn is_costly(&self) -> bool {
        true
    }

    fn head(&self, out: &mut Vec<u8>) {
        write_head(out, "Table", META_V1, &self.head);
        out.extend_from_slice(&self.columns);
        out.extend_from_slice(b",\"rows\":[");
    }

    fn item(&self, entry: &Entry, first: bool, out: &mut Vec<u8>) -> Result<(), ApiError> {
        if !first {
            out.push(b',');
        }
        // Rows are cached for the stored version only.
        if self.kind.conversion.is_none() {
            let row = entry.try_encoding(SLOT_ROW, || Row::of(&self.kind, &entry.json.text()))?;
            if let Some(row) = Row::read(&row) {
                out.extend_from_slice(b"{\"cells\":");
                row.write(out, self.now);
                out.extend_from_slice(b",\"object\":");
                match self.include {
                    IncludeObject::None => out.extend_from_slice(b"null"),
                    IncludeObject::Metadata => write_metadata_of(out, &self.kind, entry)?,
                    IncludeObject::Object => entry.json.append_to(out, 0..entry.json.len()),
                }
                out.push(b'}');
                return Ok(());
            }
        }
        let metadata = self.kind.metadata_of(entry)?;
        write_row(out, &self.kind, self.include, &self.kind.view(entry)?, &metadata, self.now)
    }

    fn tail(&self, empty: bool, out: &mut Vec<u8>) {
        // Compat: empty tables of kinds without columns of their own have `null` rows.
        let plain =
            self.kind.columns().get(1).is_some_and(|column| column.name == Column::CREATED_AT.name);
        if empty && plain && !self.kind.is_custom() {
            return no_items(out);
        }
        out.extend_from_slice(b"]}\n");
    }
}

/// The table of one object.
pub(crate) fn of_object(
    engine: &Engine,
    kind: &Kind,
    include: IncludeObject,
    json: &[u8],
) -> Result<Bytes, ApiError> {
    of_object_with(engine, kind, include, json, true)
}

/// In a watch only the first table has column definitions.
pub(crate) fn of_object_with(
    engine: &Engine,
    kind: &Kind,
    include: IncludeObject,
    json: &[u8],
    with_columns: bool,
) -> Result<Bytes, ApiError> {
    let metadata = kind.metadata(&json[metadata_range(json)?])?;
    let version = decode::tree(&metadata)?;
    let revision = version.str_at(&["resourceVersion"]).parse().unwrap_or_default();
    let mut out = Vec::with_capacity(json.len() / 2);
    write_head(&mut out, "Table", META_V1, &ListHead { revision, ..ListHead::default() });
    if with_columns {
        out.extend_from_slice(&column_definitions(engine, kind));
    } else {
        out.extend_from_slice(b",\"columnDefinitions\":null");
    }
    out.extend_from_slice(b",\"rows\":[");
    write_row(&mut out, kind, include, json, &metadata, Time::now())?;
    out.extend_from_slice(b"]}");
    Ok(out.into())
}

/// The table of a scale of any kind.
pub(crate) fn of_scale(
    request: &ResourceRequest<'_>,
    include: IncludeObject,
    scale: &Value,
    json: &[u8],
) -> Result<Bytes, ApiError> {
    const SPEC: &str = "io.k8s.api.autoscaling.v1.ScaleSpec";
    const STATUS: &str = "io.k8s.api.autoscaling.v1.ScaleStatus";
    // Compat: the same columns are declared in two ways.
    let (name_format, age_kind) =
        if request.kind.is_custom() { ("name", "date") } else { ("", "string") };
    let columns = [
        Column { format: Str::new_static(name_format), ..Column::NAME },
        Column::integer("Desired", |o, _| count(o, "spec")).about(SPEC, "replicas"),
        Column::integer("Available", |o, _| count(o, "status")).about(STATUS, "replicas"),
        Column { kind: Str::new_static(age_kind), ..Column::AGE },
    ];
    let metadata = &json[metadata_range(json)?];
    let revision = scale.str_at(&["metadata", "resourceVersion"]).parse().unwrap_or_default();
    let mut out = Vec::with_capacity(json.len() * 2);
    write_head(&mut out, "Table", META_V1, &ListHead { revision, ..ListHead::default() });
    write_columns(&mut out, &columns, &*request.engine.field_descriptions);
    out.extend_from_slice(b",\"rows\":[");
    write_cells(&mut out, &columns, scale, Time::now());
    write_object(&mut out, include, json, metadata);
    out.extend_from_slice(b"]}");
    Ok(out.into())
}

fn count(scale: &Value, part: &str) -> Cell {
    Cell::Integer(scale.i64_at(&[part, "replicas"]).unwrap_or_default())
}

/// The column definitions of a kind; descriptions are looked up once.
fn column_definitions(engine: &Engine, kind: &Kind) -> Bytes {
    let written = kind.column_definitions.get_or_init(|| {
        let mut out = Vec::new();
        write_columns(&mut out, kind.columns(), &*engine.field_descriptions);
        out.into()
    });
    written.clone()
}

fn write_columns(out: &mut Vec<u8>, columns: &[Column], describe: &FieldDescriptions) {
    let defined = || columns.iter().filter(|column| column.defined);
    let fields: Vec<(&str, &str)> = defined().filter_map(|column| column.described_by).collect();
    let mut described = describe(&fields).into_iter();
    out.extend_from_slice(b",\"columnDefinitions\":[");
    for (at, column) in defined().enumerate() {
        let about_field = column.described_by.and_then(|_| described.next());
        let description = about_field.as_deref().unwrap_or(&column.description);
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"name\":");
        meta::json::write_string(out, &column.name);
        let texts = [
            ("type", column.kind.as_str()),
            ("format", column.format.as_str()),
            ("description", description),
        ];
        for (name, text) in texts {
            out.extend_from_slice(format!(",\"{name}\":").as_bytes());
            meta::json::write_string(out, text);
        }
        out.extend_from_slice(format!(",\"priority\":{}}}", column.priority).as_bytes());
    }
    out.push(b']');
}

fn write_row(
    out: &mut Vec<u8>,
    kind: &Kind,
    include: IncludeObject,
    json: &[u8],
    metadata: &[u8],
    now: Time,
) -> Result<(), ApiError> {
    // Cells need the decoded object: the one place on the read path that decodes. A list does it
    // once per object, see `Row`.
    let object = decode::tree(json)?;
    write_cells(out, kind.columns(), &object, now);
    write_conditions(out, kind, &object);
    write_object(out, include, json, metadata);
    Ok(())
}

fn write_cells(out: &mut Vec<u8>, columns: &[Column], object: &Value, now: Time) {
    out.extend_from_slice(b"{\"cells\":[");
    for (at, column) in columns.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        column.cell.read(object, now).write(out);
    }
    out.push(b']');
}

fn write_conditions(out: &mut Vec<u8>, kind: &Kind, object: &Value) {
    let conditions = kind.strategy.row_conditions(object);
    if conditions.is_empty() {
        return;
    }
    out.extend_from_slice(b",\"conditions\":[");
    for (at, condition) in conditions.iter().enumerate() {
        out.extend_from_slice(if at > 0 { b",{" } else { b"{" });
        // In kube-apiserver's order.
        for (at, field) in ["type", "status", "reason", "message"].into_iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            meta::json::write_string(out, field);
            out.push(b':');
            meta::json::write_string(out, condition.str_at(&[field]));
        }
        out.push(b'}');
    }
    out.push(b']');
}

fn write_object(out: &mut Vec<u8>, include: IncludeObject, json: &[u8], metadata: &[u8]) {
    out.extend_from_slice(b",\"object\":");
    match include {
        IncludeObject::None => out.extend_from_slice(b"null"),
        IncludeObject::Metadata => write_metadata_only(out, metadata),
        IncludeObject::Object => out.extend_from_slice(json),
    }
    out.push(b'}');
}

/// The cells of an object, cached in its entry. They are computed once; only the age changes with
/// time, and is filled in when the row is written.
///
/// Stored as eight bytes of creation time, then the JSON of the cells (and of the conditions) with
/// a zero byte in place of the age. Empty: other cells change with time too, so the row is computed
/// each time.
struct Row<'a> {
    created: Time,
    cells: &'a [u8],
}

const AGE: u8 = 0;

impl<'a> Row<'a> {
    fn of(kind: &Kind, json: &[u8]) -> Result<Bytes, ApiError> {
        let object = decode::tree(json)?;
        let created = object.str_at(&["metadata", "creationTimestamp"]);
        let Ok(created) = Time::parse(created) else { return Ok(Bytes::new()) };
        // A cell that is the same at very different times does not depend on the time.
        let (soon, late) = (Time::from_unix(created.unix_seconds() + 1, 0), Time::now());
        let late = Time::from_unix(late.unix_seconds() + 1_000_000_000, 0);
        let age = |now: Time| Cell::text(now.since(created).human());
        let mut out = created.unix_seconds().to_le_bytes().to_vec();
        out.push(b'[');
        for (at, column) in kind.columns().iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            let (first, second) =
                (column.cell.read(&object, soon), column.cell.read(&object, late));
            if first == second {
                first.write(&mut out);
            } else if first == age(soon) && second == age(late) {
                out.push(AGE);
            } else {
                return Ok(Bytes::new());
            }
        }
        out.push(b']');
        write_conditions(&mut out, kind, &object);
        Ok(out.into())
    }

    fn read(kept: &'a Bytes) -> Option<Self> {
        let (seconds, cells) = kept.split_first_chunk::<8>()?;
        Some(Self { created: Time::from_unix(i64::from_le_bytes(*seconds), 0), cells })
    }

    fn write(&self, out: &mut Vec<u8>, now: Time) {
        for (at, piece) in self.cells.split(|byte| *byte == AGE).enumerate() {
            if at > 0 {
                Cell::text(now.since(self.created).human()).write(out);
            }
            out.extend_from_slice(piece);
        }
    }
}
