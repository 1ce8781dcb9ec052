//! What `kubectl get` shows: columns, and how a cell is read off an object.

use meta::{Str, Value, time::Time};

/// A column of a kind's table.
#[derive(Clone)]
pub struct Column {
    pub name: &'static str,
    /// `string`, `integer`, `number`, `boolean`, `date`.
    pub kind: &'static str,
    /// `name` marks the column that identifies a row.
    pub format: &'static str,
    /// 0: always shown; 1: only with `-o wide`.
    pub priority: u8,
    pub description: &'static str,
    pub cell: fn(&Value, Time) -> Cell,
}

/// What a cell shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Text(Str),
    Integer(i64),
    Bool(bool),
    /// No value: `<none>` for kubectl.
    Null,
}

impl Column {
    pub const NAME: Self = Self {
        name: "Name",
        kind: "string",
        format: "name",
        priority: 0,
        description: "",
        cell: |o, _| Cell::text(o.str_at(&["metadata", "name"])),
    };

    /// How long ago the object was created.
    pub const AGE: Self =
        Self { name: "Age", kind: "string", format: "", priority: 0, description: "", cell: age };

    pub const CREATED_AT: Self = Self {
        name: "Created At",
        kind: "date",
        format: "",
        priority: 0,
        description: "",
        cell: |o, _| Cell::text(o.str_at(&["metadata", "creationTimestamp"])),
    };

    /// A text column.
    pub const fn new(name: &'static str, cell: fn(&Value, Time) -> Cell) -> Self {
        Self { name, kind: "string", format: "", priority: 0, description: "", cell }
    }

    pub const fn integer(name: &'static str, cell: fn(&Value, Time) -> Cell) -> Self {
        Self { name, kind: "integer", format: "", priority: 0, description: "", cell }
    }

    /// Shown only with `-o wide`.
    #[must_use]
    pub const fn wide(mut self) -> Self {
        self.priority = 1;
        self
    }

    /// What a kind shows that nobody has written columns for.
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

/// How long ago a time was, as people read it; `<unknown>` without a time.
pub fn since(time: &str, now: Time) -> Cell {
    Cell::Text(meta::time::age(time, now).into())
}
