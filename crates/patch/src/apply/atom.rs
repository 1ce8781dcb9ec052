//! The schema as server-side apply sees it: at each place a scalar, a list or an object, and whether
//! that has one owner as a whole or one for each of its parts.

use meta::{Map, Number, Str, Value};
use schema::{Field, ListType, Node, NodeType, Presence, Schema, Type, TypeId};

use super::path::PathElement;

/// A place in the schema.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    Type(TypeId),
    Node(&'a Node),
    /// Any JSON that has one owner as a whole.
    Opaque,
    /// Any JSON: objects have an owner for each member, lists one owner.
    Deduced,
}

/// What may stand at a place. Where anything may, all three are there.
#[derive(Clone, Copy, Default)]
pub(super) struct Atom<'a> {
    pub(super) scalar: Option<Scalar>,
    pub(super) list: Option<List<'a>>,
    pub(super) map: Option<Object<'a>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    Number,
    String,
    Bool,
    Any,
}

#[derive(Clone, Copy)]
pub(super) struct List<'a> {
    pub(super) item: Place<'a>,
    pub(super) kind: Items<'a>,
}

#[derive(Clone, Copy)]
pub(super) enum Items<'a> {
    Atomic,
    Set,
    Keyed(&'a [Str]),
}

#[derive(Clone, Copy)]
pub(super) struct Object<'a> {
    pub(super) ty: Option<&'a Type>,
    /// Members that are no known fields; None where there must be none.
    pub(super) others: Option<Place<'a>>,
    pub(super) atomic: bool,
}

/// What is to be done with the one that stands there.
#[derive(Clone, Copy)]
pub(super) enum Shape<'a> {
    Scalar(Scalar),
    List(List<'a>),
    Map(Object<'a>),
}

impl<'a> Place<'a> {
    pub(super) fn atom(self, schema: &'a Schema) -> Atom<'a> {
        let scalar = |scalar| Atom { scalar: Some(scalar), ..Atom::default() };
        let object = |object| Atom { map: Some(object), ..Atom::default() };
        let any = |others, atomic| Atom {
            scalar: Some(Scalar::Any),
            list: Some(List { item: Place::Opaque, kind: Items::Atomic }),
            map: Some(Object { ty: None, others: Some(others), atomic }),
        };
        let node = match self {
            Self::Type(id) => {
                let ty = schema.get(id);
                return object(Object::of(ty, ty.atomic));
            }
            Self::Opaque => return any(Self::Opaque, true),
            Self::Deduced => return any(Self::Deduced, false),
            Self::Node(node) => node,
        };
        match &node.kind {
            NodeType::Any if is_raw_extension(node) => any(Self::Opaque, true),
            NodeType::Any
            | NodeType::SchemaOrBool(_)
            | NodeType::SchemaOrArray(_)
            | NodeType::SchemaOrStringArray(_) => any(Self::Deduced, node.atomic),
            NodeType::AnyObject => {
                object(Object { ty: None, others: Some(Self::Deduced), atomic: node.atomic })
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
                object(Object::of(ty, node.atomic || ty.atomic && !node.granular))
            }
            NodeType::Map(item) => {
                object(Object { ty: None, others: Some(Self::Node(item)), atomic: node.atomic })
            }
            NodeType::List(item, kind) => {
                let kind = match kind {
                    ListType::Atomic | ListType::Undeclared => Items::Atomic,
                    ListType::Set => Items::Set,
                    ListType::Map(keys) => Items::Keyed(keys),
                };
                Atom { list: Some(List { item: Self::Node(item), kind }), ..Atom::default() }
            }
        }
    }
}

fn is_raw_extension(node: &Node) -> bool {
    node.definition.as_deref().is_some_and(|name| name.ends_with(".RawExtension"))
}

impl<'a> Object<'a> {
    fn of(ty: &'a Type, atomic: bool) -> Self {
        // An object without known fields is a free one.
        let open = ty.preserve_unknown || ty.fields.is_empty();
        let others = open.then_some(Place::Deduced);
        Self { ty: Some(ty), others, atomic }
    }

    pub(super) fn field(&self, name: &str) -> Option<&'a Field> {
        self.ty?.field(name)
    }

    /// The fields of a built-in type that are there even if nobody wrote them.
    pub(super) fn always_there(&self) -> impl Iterator<Item = &'a str> {
        let fields = self.ty.map_or(&[][..], |ty| &ty.fields);
        fields.iter().filter(|field| field_value(field, None).is_some()).map(|field| &*field.name)
    }

    /// The place of a member. What is not declared is deduced.
    pub(super) fn member(&self, name: &str) -> Place<'a> {
        match self.field(name) {
            Some(field) => Place::Node(&field.node),
            None => self.others.unwrap_or(Place::Deduced),
        }
    }
}

impl<'a> Atom<'a> {
    /// What a value is here. One that doesn't fit is handled as what should be there.
    pub(super) fn shape(&self, value: Option<&Value>) -> Shape<'a> {
        let fitting = match value {
            Some(Value::Object(_)) => self.map.map(Shape::Map),
            Some(Value::Array(_)) => self.list.map(Shape::List),
            None | Some(Value::Null) => None,
            Some(_) => self.scalar.map(Shape::Scalar),
        };
        let expected = || {
            let map = self.map.map(Shape::Map);
            let scalar = self.scalar.map(Shape::Scalar);
            map.or(scalar).or(self.list.map(Shape::List)).unwrap_or(Shape::Scalar(Scalar::Any))
        };
        fitting.unwrap_or_else(expected)
    }
}

impl Shape<'_> {
    pub(super) fn same_kind(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl List<'_> {
    /// The step that leads to an item of a list that has an owner for each item.
    pub(super) fn element(&self, schema: &Schema, item: &Value) -> Result<PathElement, String> {
        let fail = |why: &str| Err(why.to_owned());
        match (self.kind, item) {
            (Items::Atomic, _) => fail("invalid indexing of non-associative list"),
            (Items::Set, Value::Object(_)) => {
                fail("associative list without keys has an element that's a map type")
            }
            (Items::Set, Value::Array(_)) => {
                fail("not supported: associative list with lists as elements")
            }
            (Items::Set, Value::Null) => {
                fail("associative list without keys has an element that's an explicit null")
            }
            (Items::Set, scalar) => Ok(PathElement::Value(scalar.clone())),
            (Items::Keyed(_), Value::Null) => {
                fail("associative list with keys may not have a null element")
            }
            (Items::Keyed(keys), Value::Object(item)) => self.key(schema, keys, item),
            (Items::Keyed(_), _) => {
                fail("associative list with keys may not have non-map elements")
            }
        }
    }

    fn key(&self, schema: &Schema, keys: &[Str], item: &Map) -> Result<PathElement, String> {
        let object = self.item.atom(schema).map;
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

/// A member as the Go struct of a built-in type shows it: what `omitempty` leaves out is not there, and
/// what is always written is there even if nobody set it.
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

/// The value of a key that an item leaves out: the one that is declared, or the one that Go always
/// writes.
fn default_of(field: &Field) -> Option<&Value> {
    let always = field.presence == Presence::Always && !field.pointer;
    let zero = always.then(|| zero_of(field, false)).filter(|zero| !zero.is_null());
    field.node.default.as_ref().or(zero)
}

/// A whole value as Go's structs show it, for comparing what has one owner.
pub(super) fn normal(schema: &Schema, place: Place<'_>, value: &Value) -> Value {
    match (place.atom(schema).shape(Some(value)), value) {
        (Shape::List(list), Value::Array(items)) => {
            Value::Array(items.iter().map(|item| normal(schema, list.item, item)).collect())
        }
        (Shape::Map(object), Value::Object(map)) => {
            let mut members = Map::new();
            let names = map.keys().map(Str::as_str).chain(object.always_there());
            for name in names {
                let value = map.get(name);
                let value = object.field(name).map_or(value, |field| field_value(field, value));
                if let Some(value) = value {
                    members.insert(name, normal(schema, object.member(name), value));
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
