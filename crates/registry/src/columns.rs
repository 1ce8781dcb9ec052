//! What `kubectl get` shows: columns, and how a cell is read off an object.

use std::sync::Arc;

use meta::{Str, Value, time::Time};

/// A column of a kind's table.
#[derive(Clone)]
pub struct Column {
    pub name: Str,
    /// `string`, `integer`, `number`, `boolean`, `date`.
    pub kind: Str,
    /// `name` marks the column that identifies a row.
    pub format: Str,
    /// 0: always shown; higher: only with `-o wide`.
    pub priority: i32,
    /// False: rows have the cell, which no client shows, as nothing says what it is.
    pub defined: bool,
    /// A description of its own …
    pub description: Str,
    /// … or the description of a field: the type and the name of the field.
    pub described_by: Option<(&'static str, &'static str)>,
    pub cell: CellOf,
}

/// Looks up the OpenAPI descriptions of fields, given as pairs of type and field name.
pub type FieldDescriptions = dyn Fn(&[(&str, &str)]) -> Vec<String> + Send + Sync;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const CREATED: &str = "creationTimestamp";

/// How a cell is read off an object.
#[derive(Clone)]
pub enum CellOf {
    Known(fn(&Value, Time) -> Cell),
    /// By the `additionalPrinterColumns` of a custom resource.
    Defined(Arc<ReadCell>),
}

/// Reads a cell off an object, at a time.
pub type ReadCell = dyn Fn(&Value, Time) -> Cell + Send + Sync;

impl CellOf {
    pub fn read(&self, object: &Value, now: Time) -> Cell {
        match self {
            Self::Known(read) => read(object, now),
            Self::Defined(read) => read(object, now),
        }
    }
}

/// What a cell shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Text(Str),
    Integer(i64),
    Number(f64),
    Bool(bool),
    /// No value: `<none>` for kubectl.
    Null,
}

impl Column {
    pub const NAME: Self = Self::name_of(|o, _| Cell::text(o.str_at(&["metadata", "name"])));

    /// How long ago the object was created.
    pub const AGE: Self = Self::new("Age", age).about(OBJECT_META, CREATED);

    pub const CREATED_AT: Self = Self::known("Created At", "date", "", |o, _| {
        Cell::text(o.str_at(&["metadata", "creationTimestamp"]))
    })
    .about(OBJECT_META, CREATED);

    /// The name column with another cell.
    pub const fn name_of(cell: fn(&Value, Time) -> Cell) -> Self {
        Self::known("Name", "string", "name", cell).about(OBJECT_META, "name")
    }

    /// The same column, described as the field of a type is.
    #[must_use]
    pub const fn about(mut self, definition: &'static str, field: &'static str) -> Self {
        self.described_by = Some((definition, field));
        self
    }

    /// A text column.
    pub const fn new(name: &'static str, cell: fn(&Value, Time) -> Cell) -> Self {
        Self::known(name, "string", "", cell)
    }

    pub const fn integer(name: &'static str, cell: fn(&Value, Time) -> Cell) -> Self {
        Self::known(name, "integer", "", cell)
    }

    pub const fn boolean(name: &'static str, cell: fn(&Value, Time) -> Cell) -> Self {
        Self::known(name, "boolean", "", cell)
    }

    const fn known(
        name: &'static str,
        kind: &'static str,
        format: &'static str,
        cell: fn(&Value, Time) -> Cell,
    ) -> Self {
        Self {
            name: Str::new_static(name),
            kind: Str::new_static(kind),
            format: Str::new_static(format),
            priority: 0,
            defined: true,
            description: Str::new_static(""),
            described_by: None,
            cell: CellOf::Known(cell),
        }
    }

    /// Shown only with `-o wide`.
    #[must_use]
    pub const fn wide(mut self) -> Self {
        self.priority = 1;
        self
    }

    /// A cell at the end of rows that no column definition stands for.
    #[must_use]
    pub const fn undefined(mut self) -> Self {
        self.defined = false;
        self
    }

    /// The columns of a kind that defines none.
    pub fn name_and_created_at() -> Vec<Self> {
        vec![Self::NAME, Self::CREATED_AT]
    }
}

impl Cell {
    pub fn text(text: impl AsRef<str>) -> Self {
        Self::Text(Str::new(text))
    }

    /// Appends the cell as JSON.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => meta::json::write_string(out, text),
            Self::Integer(number) => meta::json::write_number(out, meta::Number::Int(*number)),
            Self::Number(number) => meta::json::write_number(out, meta::Number::Float(*number)),
            Self::Bool(true) => out.extend_from_slice(b"true"),
            Self::Bool(false) => out.extend_from_slice(b"false"),
            Self::Null => out.extend_from_slice(b"null"),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<i64> for Cell {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

/// The age that `kubectl` shows: how long ago `metadata.creationTimestamp` was.
fn age(object: &Value, now: Time) -> Cell {
    since(object.str_at(&["metadata", "creationTimestamp"]), now)
}

/// A duration since a time in kubectl's short form; `<unknown>` without a time.
pub fn since(time: &str, now: Time) -> Cell {
    Cell::Text(meta::time::age(time, now).into())
}
