//! The types themselves: an arena of object types, and nodes that say how each of them is used.

use std::{collections::HashMap, sync::OnceLock};

use meta::{Str, Value};

use crate::field_index::FieldIndex;

/// An arena of types that refer to each other by index, so that they may be recursive
/// (`JSONSchemaProps`) and shared (`ObjectMeta`).
#[derive(Debug, Default)]
pub struct Schema {
    types: Vec<Type>,
    by_name: HashMap<Str, TypeId>,
    /// Where defaults are to be found, worked out when they are first asked for.
    defaults: OnceLock<crate::Defaults>,
}

/// The place of a type in its [`Schema`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

/// An object type: known fields, and what becomes of the others.
#[derive(Clone, Debug, Default)]
pub struct Type {
    /// The OpenAPI definition name (`io.k8s.api.core.v1.Pod`); empty for a nested CRD type.
    pub name: Str,
    /// In the order in which they are printed.
    pub fields: Vec<Field>,
    /// Unknown fields are kept (CRDs: `x-kubernetes-preserve-unknown-fields`).
    pub preserve_unknown: bool,
    /// Server-side apply replaces it as a whole wherever it is used (`x-kubernetes-map-type: atomic`
    /// on the definition); the nodes that use it have their own `atomic` set as well.
    pub atomic: bool,
    /// `x-kubernetes-unions`; only told on in OpenAPI.
    pub unions: Vec<Union>,
    /// Group, version and kind that this type is the schema of (`x-kubernetes-group-version-kind`).
    pub kinds: Vec<meta::GroupVersionKind>,
    by_name: FieldIndex,
}

#[derive(Clone, Debug, Default)]
pub struct Field {
    /// The JSON name.
    pub name: Str,
    pub node: Node,
    /// The protobuf tag; 0 where there is none (custom resources, JSON-only types).
    pub tag: u32,
    /// Where Go embeds a struct, JSON shows its fields here while protobuf keeps them in a message of
    /// their own: the tags of the messages on the way down to `tag`. Mostly empty.
    pub within: Vec<u32>,
    /// Listed under `required` in OpenAPI.
    pub required: bool,
    pub presence: Presence,
    /// The field is a Go pointer (or has its presence tracked in another way): in protobuf its zero
    /// value is written when it is present.
    pub pointer: bool,
    pub patch: PatchStrategy,
}

/// Fields of which at most one is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Union {
    /// The field that names the one that is set, if there is such a field.
    pub discriminator: Option<Str>,
    pub fields: Vec<Str>,
}

/// When an encoder writes a field. It is what Go's `omitempty`, `omitzero` and pointers come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// Written if and only if it is there (and not null).
    #[default]
    AsGiven,
    /// Left out when it is its zero value or empty.
    OmitEmpty,
    /// Always written; what is absent is written as its zero value (`""`, `0`, `false`, `{}`, and
    /// `null` for lists, maps, times and pointers).
    Always,
}

/// One use of a type: as a field, a list item, a map value.
#[derive(Clone, Debug, Default)]
pub struct Node {
    pub kind: NodeType,
    /// How server-side apply merges it (objects and maps; lists say it in their kind).
    pub atomic: bool,
    /// Merged field by field, and declared so: against its type (`claimRef` of a PersistentVolume), or
    /// just for OpenAPI to say it.
    pub granular: bool,
    pub nullable: bool,
    pub default: Option<Value>,
    /// The only values that a string may have; empty = any. Enforced by validation, not by decoding.
    pub enum_values: Vec<Str>,
    /// The OpenAPI `format` where it is not the one that follows from the kind.
    pub format: Option<Str>,
    /// The OpenAPI definition behind a node that is no object (`Time`, `Quantity`, `RawExtension` …).
    pub definition: Option<Str>,
    /// A list that is a message of its own in protobuf, with the items as field 1: Go slice types
    /// with a name (`ExtraValue`, `Verbs`).
    pub wrapped: bool,
}

#[derive(Clone, Debug, Default)]
pub enum NodeType {
    /// Any JSON, kept as it is (`RawExtension`, `FieldsV1`, `JSON`).
    #[default]
    Any,
    /// Any JSON object, kept as it is.
    AnyObject,
    Bool,
    Int32,
    Int64,
    /// A JSON number (Go float64).
    Double,
    String,
    /// Base64 text (Go `[]byte`).
    Bytes,
    /// RFC 3339, seconds.
    Time,
    /// RFC 3339, microseconds.
    MicroTime,
    /// Go duration text (`1m0s`).
    Duration,
    Quantity,
    IntOrString,
    Object(TypeId),
    List(Box<Node>, ListType),
    /// Free keys, values of one type.
    Map(Box<Node>),
    /// `JSONSchemaPropsOrBool`. In protobuf: allows = 1, schema = 2.
    SchemaOrBool(TypeId),
    /// `JSONSchemaPropsOrArray`. In protobuf: schema = 1, items = 2.
    SchemaOrArray(TypeId),
    /// `JSONSchemaPropsOrStringArray`. In protobuf: schema = 1, strings = 2.
    SchemaOrStringArray(TypeId),
}

/// How server-side apply and strategic merge see a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// Replaced as a whole, and declared so.
    Atomic,
    Set,
    /// Items are told apart by these keys.
    Map(Vec<Str>),
    /// Nothing declared: handled as atomic, but OpenAPI doesn't say so.
    #[default]
    Undeclared,
}

/// What strategic merge patch does with a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    pub merge: bool,
    /// `retainKeys`, alone or with `merge`.
    pub retain_keys: bool,
    /// `replace` written out in the definition (it is also what no strategy means).
    pub replace: bool,
    pub merge_key: Option<Str>,
}

impl Schema {
    /// Adds a type and returns its place.
    pub fn add(&mut self, mut ty: Type) -> TypeId {
        ty.index();
        let id = TypeId(self.types.len() as u32);
        if !ty.name.is_empty() {
            self.by_name.insert(ty.name.clone(), id);
        }
        self.types.push(ty);
        id
    }

    /// Fills a place that was taken before its type was known (recursive types).
    pub fn set(&mut self, id: TypeId, mut ty: Type) {
        ty.index();
        if !ty.name.is_empty() {
            self.by_name.insert(ty.name.clone(), id);
        }
        self.types[id.0 as usize] = ty;
    }

    pub fn get(&self, id: TypeId) -> &Type {
        &self.types[id.0 as usize]
    }

    /// Fills in the defaults of a type's definition.
    pub fn apply_defaults(&self, ty: TypeId, object: &mut Value) {
        self.defaults.get_or_init(|| crate::Defaults::of(self)).apply(self, ty, object);
    }

    pub fn by_name(&self, name: &str) -> Option<TypeId> {
        self.by_name.get(name).copied()
    }

    pub fn types(&self) -> impl ExactSizeIterator<Item = (TypeId, &Type)> {
        self.types.iter().enumerate().map(|(at, ty)| (TypeId(at as u32), ty))
    }
}

impl Type {
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.field_index(name).map(|at| &self.fields[at])
    }

    pub fn field_index(&self, name: &str) -> Option<usize> {
        self.by_name.find(&self.fields, name)
    }

    fn index(&mut self) {
        self.by_name = FieldIndex::of(&self.fields);
    }
}

impl From<NodeType> for Node {
    fn from(kind: NodeType) -> Self {
        Self { kind, ..Self::default() }
    }
}
