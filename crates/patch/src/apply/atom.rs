//! The schema as structured-merge-diff sees it: each type resolves to an atom (scalar, list or map)
//! that is either atomic (one owner) or granular (an owner per item or field).

use meta::{Map, Number, Str, Value};
use schema::{Field, ListType, Node, NodeType, Presence, Schema, Type, TypeId};

use super::path::PathElement;

/// A reference to a type in the schema; [`TypeRef::resolve`] gives its atom.
#[derive(Clone, Copy)]
pub(super) enum TypeRef<'a> {
    Type(TypeId),
    Node(&'a Node),
    /// Any JSON, atomic.
    Opaque,
    /// structured-merge-diff's `__untyped_deduced_`: any JSON, objects are granular, lists atomic.
    Deduced,
}

/// The alternatives that a type allows. For an untyped value all three are set.
#[derive(Clone, Copy, Default)]
pub(super) struct Atom<'a> {
    pub(super) scalar: Option<Scalar>,
    pub(super) list: Option<ListSchema<'a>>,
    pub(super) map: Option<MapSchema<'a>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    Number,
    String,
    Bool,
    Any,
}

#[derive(Clone, Copy)]
pub(super) struct ListSchema<'a> {
    pub(super) item: TypeRef<'a>,
    pub(super) kind: ElementRelationship<'a>,
}

#[derive(Clone, Copy)]
pub(super) enum ElementRelationship<'a> {
    Atomic,
    Set,
    Keyed(&'a [Str]),
}

#[derive(Clone, Copy)]
pub(super) struct MapSchema<'a> {
    pub(super) ty: Option<&'a Type>,
    /// The type of fields that are not declared; None if there must be none.
    pub(super) others: Option<TypeRef<'a>>,
    pub(super) atomic: bool,
}

/// The alternative of an [`Atom`] that applies to a value.
#[derive(Clone, Copy)]
pub(super) enum DeducedAtom<'a> {
    Scalar(Scalar),
    List(ListSchema<'a>),
    Map(MapSchema<'a>),
}

impl<'a> TypeRef<'a> {
    pub(super) fn resolve(self, schema: &'a Schema) -> Atom<'a> {
        let scalar = |scalar| Atom { scalar: Some(scalar), ..Atom::default() };
        let object = |object| Atom { map: Some(object), ..Atom::default() };
        let any = |others, atomic| Atom {
            scalar: Some(Scalar::Any),
            list: Some(ListSchema { item: TypeRef::Opaque, kind: ElementRelationship::Atomic }),
            map: Some(MapSchema { ty: None, others: Some(others), atomic }),
        };
        let node = match self {
            Self::Type(id) => {
                let ty = schema.get(id);
                return object(MapSchema::of(ty, ty.atomic));
            }
            Self::Opaque => return any(Self::Opaque, true),
            Self::Deduced => return any(Self::Deduced, false),
            Self::Node(node) => node,
        };
        match &node.kind {
            NodeType::Raw => any(Self::Opaque, true),
            NodeType::Any
            | NodeType::SchemaOrBool(_)
            | NodeType::SchemaOrArray(_)
            | NodeType::SchemaOrStringArray(_) => any(Self::Deduced, node.atomic),
            NodeType::AnyObject => {
                object(MapSchema { ty: None, others: Some(Self::Deduced), atomic: node.atomic })
            }
            NodeType::Bool => scalar(Scalar::Bool),
            NodeType::Int32 | NodeType::Int64 | NodeType::Double => scalar(Scalar::Number),
            NodeType::String | NodeType::Duration if node.format.is_none() => {
                scalar(Scalar::String)
            }
            NodeType::Bytes => scalar(Scalar::String),
            NodeType::String
            | NodeType::Duration
            | NodeType::Time
            | NodeType::MicroTime
            | NodeType::Quantity
            | NodeType::IntOrString => scalar(Scalar::Any),
            NodeType::Object(id) => {
                let ty = schema.get(*id);
                object(MapSchema::of(ty, node.atomic || ty.atomic && !node.granular))
            }
            NodeType::Map(item) => {
                object(MapSchema { ty: None, others: Some(Self::Node(item)), atomic: node.atomic })
            }
            NodeType::List(item, kind) => {
                let kind = match kind {
                    ListType::Atomic | ListType::Undeclared => ElementRelationship::Atomic,
                    ListType::Set => ElementRelationship::Set,
                    ListType::Map(keys) => ElementRelationship::Keyed(keys),
                };
                Atom { list: Some(ListSchema { item: Self::Node(item), kind }), ..Atom::default() }
            }
        }
    }
}

impl<'a> MapSchema<'a> {
    fn of(ty: &'a Type, atomic: bool) -> Self {
        // An object without declared fields accepts any field.
        let open = ty.preserve_unknown || ty.fields.is_empty();
        let others = open.then_some(TypeRef::Deduced);
        Self { ty: Some(ty), others, atomic }
    }

    pub(super) fn field(&self, name: &str) -> Option<&'a Field> {
        self.ty?.field(name)
    }

    /// The fields of a built-in type that Go writes even if no client set them.
    pub(super) fn always_present(&self) -> impl Iterator<Item = &'a str> {
        let fields = self.ty.map_or(&[][..], |ty| &ty.fields);
        fields.iter().filter(|field| field_value(field, None).is_some()).map(|field| &*field.name)
    }

    /// The type of a field. Undeclared fields are deduced.
    pub(super) fn member(&self, name: &str) -> TypeRef<'a> {
        self.member_of(self.field(name))
    }

    /// The same for a field that was looked up already.
    pub(super) fn member_of(&self, field: Option<&'a Field>) -> TypeRef<'a> {
        match field {
            Some(field) => TypeRef::Node(&field.node),
            None => self.others.unwrap_or(TypeRef::Deduced),
        }
    }
}

impl<'a> Atom<'a> {
    /// Chooses the alternative for a value. A value of the wrong type is handled as the expected
    /// type.
    pub(super) fn deduce(&self, value: Option<&Value>) -> DeducedAtom<'a> {
        let fitting = match value.map(Value::tree) {
            Some(Value::Object(_)) => self.map.map(DeducedAtom::Map),
            Some(Value::Array(_)) => self.list.map(DeducedAtom::List),
            None | Some(Value::Null) => None,
            Some(_) => self.scalar.map(DeducedAtom::Scalar),
        };
        let expected = || {
            let map = self.map.map(DeducedAtom::Map);
            let scalar = self.scalar.map(DeducedAtom::Scalar);
            map.or(scalar)
                .or(self.list.map(DeducedAtom::List))
                .unwrap_or(DeducedAtom::Scalar(Scalar::Any))
        };
        fitting.unwrap_or_else(expected)
    }
}

impl DeducedAtom<'_> {
    pub(super) fn same_kind(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl ListSchema<'_> {
    /// The path element of an item of an associative list.
    pub(super) fn element(&self, schema: &Schema, item: &Value) -> Result<PathElement, String> {
        let fail = |why: &str| Err(why.to_owned());
        match (self.kind, item) {
            (ElementRelationship::Atomic, _) => fail("invalid indexing of non-associative list"),
            (ElementRelationship::Set, Value::Object(_)) => {
                fail("associative list without keys has an element that's a map type")
            }
            (ElementRelationship::Set, Value::Array(_)) => {
                fail("not supported: associative list with lists as elements")
            }
            (ElementRelationship::Set, Value::Null) => {
                fail("associative list without keys has an element that's an explicit null")
            }
            (ElementRelationship::Set, scalar) => Ok(PathElement::Value(scalar.clone())),
            (ElementRelationship::Keyed(_), Value::Null) => {
                fail("associative list with keys may not have a null element")
            }
            (ElementRelationship::Keyed(keys), Value::Object(item)) => self.key(schema, keys, item),
            (ElementRelationship::Keyed(_), _) => {
                fail("associative list with keys may not have non-map elements")
            }
        }
    }

    fn key(&self, schema: &Schema, keys: &[Str], item: &Map) -> Result<PathElement, String> {
        let object = self.item.resolve(schema).map;
        let default = |name: &str| default_of(object?.field(name)?);
        let fields: Vec<(Str, Value)> = keys
            .iter()
            .filter_map(|name| {
                Some((name.clone(), item.get(name).or_else(|| default(name))?.clone()))
            })
            .collect();
        if fields.is_empty() && !keys.is_empty() {
            let keys: Vec<String> = keys.iter().map(|key| meta::field::quote(key)).collect();
            let keys = keys.join(" ");
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{keys}] (and \
                 doesn't have default values for any key fields)"
            ));
        }
        Ok(PathElement::key(fields))
    }
}

/// A field as the Go struct of a built-in type would serialize it: `omitempty` drops zero values,
/// other fields are present even if no client set them.
pub(super) fn field_value<'v>(field: &Field, value: Option<&'v Value>) -> Option<&'v Value> {
    let is_struct = matches!(field.node.kind, NodeType::Object(_)) && !field.pointer;
    let given = value.filter(|value| !value.is_null());
    match field.presence {
        Presence::AsGiven => value,
        Presence::OmitEmpty if is_struct => Some(given.unwrap_or(&EMPTY_OBJECT)),
        Presence::OmitEmpty if field.pointer => given,
        Presence::OmitEmpty => given.filter(|value| !is_zero(value)),
        Presence::Always => Some(given.unwrap_or_else(|| zero_of(field, is_struct))),
    }
}

/// The value of a list map key that an item omits: the declared default, or the zero value that Go
/// always writes.
fn default_of(field: &Field) -> Option<&Value> {
    let always = field.presence == Presence::Always && !field.pointer;
    let zero = always.then(|| zero_of(field, false)).filter(|zero| !zero.is_null());
    field.node.default.as_ref().or(zero)
}

/// A value as Go's structs would serialize it, for comparing atomic values.
pub(super) fn normalize(schema: &Schema, type_ref: TypeRef<'_>, value: &Value) -> Value {
    let value = value.tree();
    match (type_ref.resolve(schema).deduce(Some(value)), value) {
        (DeducedAtom::List(list), Value::Array(items)) => {
            Value::Array(items.iter().map(|item| normalize(schema, list.item, item)).collect())
        }
        (DeducedAtom::Map(object), Value::Object(map)) => {
            let mut members = Map::new();
            let names = map.keys().map(Str::as_str).chain(object.always_present());
            for name in names {
                let value = map.get(name);
                let value = object.field(name).map_or(value, |field| field_value(field, value));
                if let Some(value) = value {
                    members.insert(name, normalize(schema, object.member(name), value));
                }
            }
            members.into()
        }
        (_, value) => value.clone(),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(Number::Int(number)) => *number == 0,
        Value::Number(Number::Float(number)) => *number == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Raw(_) => false,
    }
}

fn zero_of(field: &Field, is_struct: bool) -> &'static Value {
    match &field.node.kind {
        _ if is_struct => &EMPTY_OBJECT,
        _ if field.pointer => &NULL,
        NodeType::Bool => &FALSE,
        NodeType::Int32 | NodeType::Int64 | NodeType::Double | NodeType::IntOrString => &ZERO,
        NodeType::String => &EMPTY_TEXT,
        NodeType::Quantity => &ZERO_TEXT,
        _ => &NULL,
    }
}

static NULL: Value = Value::Null;
static FALSE: Value = Value::Bool(false);
static ZERO: Value = Value::Number(Number::Int(0));
static EMPTY_TEXT: Value = Value::String(Str::new_static(""));
static ZERO_TEXT: Value = Value::String(Str::new_static("0"));
static EMPTY_OBJECT: Value = Value::Object(Map::new());
