//! What is declared about data: the kind of each value in a tree, and how large it can get.
//!
//! A declaration does three things: it gives a variable its [`Type`](crate::Type) for the checker,
//! it bounds sizes for the cost estimate, and it says how a JSON value reads as a CEL value (a
//! `date-time` string is a timestamp, a list with `x-kubernetes-list-type: set` compares as a set).

use std::sync::Arc;

use meta::Str;

use crate::escape::escape;

/// The largest request the server accepts; bounds sizes that a schema leaves unbounded.
pub const REQUEST_BYTES_MAX: u64 = 3 * 1024 * 1024;

/// A declared value: what it is, how large it can be, how small its JSON can be.
#[derive(Clone, Debug, PartialEq)]
pub struct Decl {
    pub kind: DeclKind,
    /// The most elements it can have: items, properties, characters; 0 for what has no length.
    pub max_elements: u64,
    /// The fewest bytes it takes in JSON; decides how many of them fit into a request.
    pub min_json_bytes: u64,
    /// May the value be null?
    pub nullable: bool,
    /// Keys of a map, or of anything, may be named by their escape: `a__dot__b` for `a.b`.
    pub unescapes_keys: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum DeclKind {
    Bool,
    Int,
    Double,
    String,
    /// A string with format `byte`: base64 of bytes.
    Bytes,
    /// A string with format `duration`.
    Duration,
    /// A string with format `date`: a timestamp at midnight UTC.
    Date,
    /// A string with format `date-time`.
    DateTime,
    /// `x-kubernetes-int-or-string`.
    IntOrString,
    List {
        items: Arc<Decl>,
        kind: ListType,
    },
    /// An object with `additionalProperties`.
    Map {
        values: Arc<Decl>,
        /// How long keys can be; 0 where nothing is declared about them.
        key_elements: u64,
    },
    /// An object with properties.
    Object(ObjectDecl),
    /// A string that is a quantity.
    Quantity,
    /// Anything, read as JSON says: what has no schema.
    Dyn,
    /// As `Dyn`, under the name that protobuf has for it: the attributes of devices.
    Any,
    /// A value that the schema keeps but says nothing about (`x-kubernetes-preserve-unknown-fields`
    /// without a type, or a list or map of such values). Expressions cannot name it; as a part of
    /// something it is compared as a whole.
    Preserved,
}

/// How a list compares and adds: `x-kubernetes-list-type`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ListType {
    #[default]
    Atomic,
    Set,
    /// The names of the key properties.
    Map(Vec<Str>),
}

/// The properties of an object, as expressions name them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectDecl {
    // Invariant: sorted by property name.
    fields: Vec<Field>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The name in JSON.
    pub property: Str,
    /// The name in expressions; none where it cannot be written as an identifier.
    pub name: Option<Str>,
    pub decl: Arc<Decl>,
}

impl Decl {
    fn new(kind: DeclKind, max_elements: u64, min_json_bytes: u64) -> Self {
        Self { kind, max_elements, min_json_bytes, nullable: false, unescapes_keys: false }
    }

    /// The same with keys that may be named by their escape.
    #[must_use]
    pub fn unescaping_keys(self) -> Self {
        Self { unescapes_keys: true, ..self }
    }

    pub fn bool() -> Self {
        Self::new(DeclKind::Bool, 0, 4)
    }

    pub fn int() -> Self {
        Self::new(DeclKind::Int, 0, 1)
    }

    pub fn double() -> Self {
        Self::new(DeclKind::Double, 0, 1)
    }

    /// A string of at most `max_length` characters, each of which can take four bytes.
    pub fn string(max_length: Option<u64>) -> Self {
        let max = max_length.map_or(REQUEST_BYTES_MAX - 2, |length| length.saturating_mul(4));
        Self::new(DeclKind::String, max, 2)
    }

    /// A string without `maxLength` that is one of these.
    pub fn string_enum<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let longest = values.into_iter().map(str::len).max().unwrap_or_default();
        Self::new(DeclKind::String, longest as u64, 2)
    }

    pub fn bytes(max_length: Option<u64>) -> Self {
        Self::new(DeclKind::Bytes, max_length.unwrap_or(REQUEST_BYTES_MAX - 2), 2)
    }

    pub fn duration() -> Self {
        Self::new(DeclKind::Duration, 32, 3)
    }

    pub fn date() -> Self {
        Self::new(DeclKind::Date, 12, 12)
    }

    pub fn date_time() -> Self {
        Self::new(DeclKind::DateTime, 32, 21)
    }

    pub fn int_or_string(max_length: Option<u64>) -> Self {
        let max = max_length.map_or(REQUEST_BYTES_MAX - 2, |length| length.saturating_mul(4));
        Self::new(DeclKind::IntOrString, max, 1)
    }

    pub fn dynamic() -> Self {
        Self::new(DeclKind::Dyn, 0, 1)
    }

    /// A value of any kind, of which it is known how large it can be.
    pub fn any(max_elements: u64) -> Self {
        Self::new(DeclKind::Any, max_elements, 1)
    }

    pub fn quantity() -> Self {
        Self::new(DeclKind::Quantity, 0, 8)
    }

    pub fn preserved() -> Self {
        Self::new(DeclKind::Preserved, 0, 1)
    }

    pub fn list(items: Arc<Self>, kind: ListType, max_items: Option<u64>) -> Self {
        let max = max_items.unwrap_or_else(|| (REQUEST_BYTES_MAX - 2) / (items.min_json_bytes + 1));
        Self::new(DeclKind::List { items, kind }, max, 2)
    }

    pub fn map(values: Arc<Self>, max_properties: Option<u64>) -> Self {
        let max =
            max_properties.unwrap_or_else(|| (REQUEST_BYTES_MAX - 2) / (values.min_json_bytes + 6));
        Self::new(DeclKind::Map { values, key_elements: 0 }, max, 2)
    }

    /// A map whose keys have a known length.
    pub fn map_with_keys(values: Arc<Self>, key_elements: u64, max_properties: u64) -> Self {
        Self::new(DeclKind::Map { values, key_elements }, max_properties, 2)
    }

    /// A value with at most this many elements, overriding its kind.
    #[must_use]
    pub fn with_max_elements(self, max_elements: u64) -> Self {
        Self { max_elements, ..self }
    }

    /// An object with these properties: name in JSON, declaration, and whether every object has
    /// it (required, and not filled in by a default).
    pub fn object<S: AsRef<str>>(
        properties: impl IntoIterator<Item = (S, Arc<Self>, bool)>,
    ) -> Self {
        let mut min_json_bytes = 2;
        let mut fields: Vec<Field> = properties
            .into_iter()
            .map(|(property, decl, required)| {
                let property = Str::new(property);
                if required {
                    min_json_bytes += property.len() as u64 + decl.min_json_bytes + 4;
                }
                let name = match decl.kind {
                    DeclKind::Preserved => None,
                    _ => escape(&property).map(Str::from),
                };
                Field { property, name, decl }
            })
            .collect();
        fields.sort_by(|a, b| a.property.cmp(&b.property));
        Self::new(DeclKind::Object(ObjectDecl { fields }), 0, min_json_bytes)
    }

    #[must_use]
    pub fn nullable(self, nullable: bool) -> Self {
        Self { nullable, ..self }
    }

    /// How many values of this kind one request can hold at most.
    pub fn max_cardinality(&self) -> u64 {
        REQUEST_BYTES_MAX / (self.min_json_bytes + 1)
    }

    /// Is there nothing to be held to?
    pub(crate) fn is_untyped(&self) -> bool {
        matches!(self.kind, DeclKind::Dyn | DeclKind::Any)
    }

    /// The declaration of items or of a map's values.
    pub(crate) fn element(&self) -> Option<&Arc<Self>> {
        match &self.kind {
            DeclKind::List { items, .. } => Some(items),
            DeclKind::Map { values, .. } => Some(values),
            _ => None,
        }
    }
}

/// So many fields are looked through faster than they are halved.
const FEW: usize = 12;

impl ObjectDecl {
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The field whose name in JSON is `property`.
    pub fn property(&self, property: &str) -> Option<&Field> {
        // Names of another length need no look at their bytes.
        if self.fields.len() <= FEW {
            return self.fields.iter().find(|field| field.property == property);
        }
        let at =
            self.fields.binary_search_by(|field| field.property.as_str().cmp(property)).ok()?;
        Some(&self.fields[at])
    }

    /// The field that expressions call `name`.
    pub fn field(&self, name: &str) -> Option<&Field> {
        // Most names need no escaping, so that the sorted order finds them.
        match self.property(name) {
            Some(field) if field.name.as_deref() == Some(name) => Some(field),
            _ => self.fields.iter().find(|field| field.name.as_deref() == Some(name)),
        }
    }
}
