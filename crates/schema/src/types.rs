//! The schema: an arena of object types, and nodes that refer to them.

use std::{
    collections::{HashMap, HashSet},
    sync::OnceLock,
};

use meta::{
    Str, Value,
    limits::{TooLarge, TreeSize},
};

use crate::field_index::FieldIndex;

/// An arena of types that refer to each other by index, so that they may be recursive
/// (`JSONSchemaProps`) and shared (`ObjectMeta`).
#[derive(Debug, Default)]
pub struct Schema {
    types: Vec<Type>,
    by_name: HashMap<Str, TypeId>,
    /// Which types have defaults; computed on first use.
    defaults: OnceLock<crate::Defaults>,
    /// Types with raw fields, at any depth; computed on first use.
    with_raw_fields: OnceLock<HashSet<TypeId>>,
}

/// The index of a type in its [`Schema`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

/// An object type: its fields, and how unknown ones are handled.
#[derive(Clone, Debug, Default)]
pub struct Type {
    /// The OpenAPI definition name (`io.k8s.api.core.v1.Pod`); empty for a nested CRD type.
    pub name: Str,
    /// In the order in which they are printed.
    pub fields: Vec<Field>,
    /// Unknown fields are preserved (CRDs: `x-kubernetes-preserve-unknown-fields`).
    pub preserve_unknown: bool,
    /// Server-side apply replaces it as a whole wherever it is used (`x-kubernetes-map-type: atomic`
    /// on the definition); the nodes that use it have their own `atomic` set as well.
    pub atomic: bool,
    /// `x-kubernetes-unions`; only published in OpenAPI.
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
    /// For a field of an embedded Go struct, which JSON inlines and protobuf keeps as a message:
    /// the tags of the enclosing messages. Mostly empty.
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
    /// The discriminator field, if any.
    pub discriminator: Option<Str>,
    pub fields: Vec<Str>,
}

/// When an encoder writes a field: Go's `omitempty`, `omitzero` and pointers reduced to three
/// cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// Written if it is present and not null.
    #[default]
    AsGiven,
    /// Omitted when it is its zero value or empty.
    OmitEmpty,
    /// Always written; an absent field is written as its zero value (`""`, `0`, `false`, `{}`, and
    /// `null` for lists, maps, times and pointers).
    Always,
}

/// One use of a type: as a field, a list item, a map value.
#[derive(Clone, Debug, Default)]
pub struct Node {
    pub kind: NodeType,
    /// Server-side apply replaces it as a whole (objects and maps; lists have a [`ListType`]).
    pub atomic: bool,
    /// Explicitly declared granular: overrides an atomic type (`claimRef` of a PersistentVolume),
    /// or is only published in OpenAPI.
    pub granular: bool,
    pub nullable: bool,
    pub default: Option<Value>,
    /// The only values that a string may have; empty = any. Enforced by validation, not by decoding.
    pub enum_values: Vec<Str>,
    /// The OpenAPI `format` if it is not the default of the node type.
    pub format: Option<Str>,
    /// The OpenAPI definition of a node that is not an object (`Time`, `Quantity`, `RawExtension`
    /// …).
    pub definition: Option<Str>,
    /// A list that is a message of its own in protobuf, with the items as field 1: Go slice types
    /// with a name (`ExtraValue`, `Verbs`).
    pub wrapped: bool,
}

#[derive(Clone, Debug, Default)]
pub enum NodeType {
    /// Any JSON, kept as it is (`FieldsV1`, `JSON`).
    #[default]
    Any,
    /// Any JSON, kept with its text (`RawExtension`).
    Raw,
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

/// `x-kubernetes-list-type`: how server-side apply merges a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// Declared atomic: replaced as a whole.
    Atomic,
    Set,
    /// Items are identified by these keys (`x-kubernetes-list-map-keys`).
    Map(Vec<Str>),
    /// Not declared: handled as atomic, but not published in OpenAPI.
    #[default]
    Undeclared,
}

/// The patch strategy and merge key of a field, for strategic merge patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    pub merge: bool,
    /// `retainKeys`, alone or with `merge`.
    pub retain_keys: bool,
    /// An explicit `replace` in the definition (the default).
    pub replace: bool,
    pub merge_key: Option<Str>,
}

impl Schema {
    /// Adds a type and returns its id.
    pub fn add(&mut self, mut ty: Type) -> TypeId {
        ty.index();
        let id = TypeId(self.types.len() as u32);
        if !ty.name.is_empty() {
            self.by_name.insert(ty.name.clone(), id);
        }
        self.types.push(ty);
        id
    }

    /// Sets the type of an id that was reserved earlier (recursive types).
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

    /// Applies the defaults of a type to an object.
    pub fn apply_defaults(&self, ty: TypeId, object: &mut Value) {
        let unbounded = self.apply_defaults_within(ty, object, &mut TreeSize::unbounded());
        debug_assert!(unbounded.is_ok());
    }

    /// The same for an object of a client, which may grow only so much.
    pub fn apply_defaults_within(
        &self,
        ty: TypeId,
        object: &mut Value,
        size: &mut TreeSize,
    ) -> Result<(), TooLarge> {
        let defaults = self.defaults.get_or_init(|| crate::Defaults::of(self));
        defaults.apply(self, ty, object, size)
    }

    /// Whether objects of a type may have raw fields, which only a decoder that knows the type keeps.
    pub fn has_raw_fields(&self, ty: TypeId) -> bool {
        self.with_raw_fields.get_or_init(|| self.find_raw_fields()).contains(&ty)
    }

    fn find_raw_fields(&self) -> HashSet<TypeId> {
        fn holds_raw(kind: &NodeType, found: &HashSet<TypeId>) -> bool {
            match kind {
                NodeType::Raw => true,
                NodeType::Object(id) => found.contains(id),
                NodeType::List(item, _) | NodeType::Map(item) => holds_raw(&item.kind, found),
                _ => false,
            }
        }
        let mut found = HashSet::new();
        loop {
            let before = found.len();
            for (id, ty) in self.types() {
                if ty.fields.iter().any(|field| holds_raw(&field.node.kind, &found)) {
                    found.insert(id);
                }
            }
            if found.len() == before {
                return found;
            }
        }
    }

    pub fn by_name(&self, name: &str) -> Option<TypeId> {
        self.by_name.get(name).copied()
    }

    pub fn types(&self) -> impl ExactSizeIterator<Item = (TypeId, &Type)> {
        self.types.iter().enumerate().map(|(at, ty)| (TypeId(at as u32), ty))
    }
}

impl Type {
    #[inline]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.field_index(name).map(|at| &self.fields[at])
    }

    #[inline]
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
