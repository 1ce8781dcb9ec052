//! The definition files of `api/`, as the build script left them: one blob of facts, loaded once at
//! start. Texts are not copied: every name in the result points into the binary.

use std::collections::HashMap;

use meta::{GroupVersion, GroupVersionKind, GroupVersionResource, Number, Str, Value};
use schema::{
    Field, GroupVersionFacts, ListType, Node, NodeType, PatchStrategy, Presence, ResourceFacts,
    Schema, SelectableField, StorageEncoding, StorageFacts, SubresourceFacts, Type, TypeId, Union,
    UnknownLabel,
};

/// Every built-in type, group version and resource, served by default or not.
#[derive(Debug, Default)]
pub struct Definitions {
    pub schema: Schema,
    pub group_versions: Vec<GroupVersionFacts>,
    /// In the order of group, version and plural.
    pub resources: Vec<ResourceFacts>,
    by_kind: HashMap<GroupVersionKind, TypeId>,
}

impl Definitions {
    /// Reads the blob. Some milliseconds in a debug build, less than one in a release.
    pub fn load() -> Self {
        let blob: &'static [u8] = include_bytes!(concat!(env!("OUT_DIR"), "/definitions.bin"));
        let (size, rest) =
            blob.split_first_chunk().expect("the blob begins with the size of its texts");
        let (texts, stream) = rest.split_at(u32::from_le_bytes(*size) as usize);
        let texts = str::from_utf8(texts).expect("the build script writes UTF-8");
        let mut reader = Reader { texts, stream };
        let definitions = reader.definitions();
        debug_assert!(reader.stream.is_empty(), "src/definitions.rs and build/write.rs differ");
        definitions
    }

    /// The type of a kind: resources, lists, options, reviews.
    pub fn type_of(&self, kind: &GroupVersionKind) -> Option<TypeId> {
        self.by_kind.get(kind).copied()
    }

    pub fn resource(&self, name: &GroupVersionResource) -> Option<&ResourceFacts> {
        let key = |facts: &ResourceFacts| facts.group_version_resource();
        let at = self.resources.binary_search_by(|facts| key(facts).cmp(name)).ok()?;
        Some(&self.resources[at])
    }

    pub fn group_version(&self, name: &GroupVersion) -> Option<&GroupVersionFacts> {
        self.group_versions.iter().find(|facts| facts.group_version == *name)
    }
}

/// Reads what `build/write.rs` wrote, in the same order.
///
/// Invariant: the blob was written by the build script of this very crate, so it is not checked again;
/// an index out of bounds is a fault of the build, and shows at the first start.
struct Reader {
    texts: &'static str,
    stream: &'static [u8],
}

impl Reader {
    fn definitions(&mut self) -> Definitions {
        let mut definitions = Definitions::default();
        for ty in self.many(Self::ty) {
            let kinds = ty.kinds.clone();
            let id = definitions.schema.add(ty);
            definitions.by_kind.extend(kinds.into_iter().map(|kind| (kind, id)));
        }
        definitions.group_versions = self.many(|reader| {
            let group_version = reader.group_version();
            let group_priority = reader.number() as i32;
            let version_priority = reader.number() as i32;
            let [on_by_default, internal] = reader.flags();
            GroupVersionFacts {
                group_version,
                group_priority,
                version_priority,
                on_by_default,
                internal,
            }
        });
        definitions.resources = self.many(Self::resource);
        definitions
    }

    fn ty(&mut self) -> Type {
        let mut ty = Type::default();
        ty.name = self.text();
        [ty.atomic] = self.flags();
        ty.kinds = self.many(Self::kind);
        ty.unions = self.many(|reader| Union {
            discriminator: reader.option(Self::text),
            fields: reader.many(Self::text),
        });
        ty.fields = self.many(Self::field);
        ty
    }

    fn field(&mut self) -> Field {
        let name = self.text();
        let tag = self.size() as u32;
        let within = self.many(|reader| reader.size() as u32);
        let [required, pointer, merge, retain_keys, replace] = self.flags();
        let presence = match self.size() {
            0 => Presence::AsGiven,
            1 => Presence::OmitEmpty,
            _ => Presence::Always,
        };
        let merge_key = self.option(Self::text);
        let patch = PatchStrategy { merge, retain_keys, replace, merge_key };
        Field { name, node: self.node(), tag, within, required, presence, pointer, patch }
    }

    fn node(&mut self) -> Node {
        let kind = match self.size() {
            0 => NodeType::Any,
            1 => NodeType::AnyObject,
            2 => NodeType::Bool,
            3 => NodeType::Int32,
            4 => NodeType::Int64,
            5 => NodeType::Double,
            6 => NodeType::String,
            7 => NodeType::Bytes,
            8 => NodeType::Time,
            9 => NodeType::MicroTime,
            10 => NodeType::Duration,
            11 => NodeType::Quantity,
            12 => NodeType::IntOrString,
            13 => NodeType::Object(self.type_id()),
            14 => NodeType::SchemaOrBool(self.type_id()),
            15 => NodeType::SchemaOrArray(self.type_id()),
            16 => NodeType::SchemaOrStringArray(self.type_id()),
            17 => NodeType::Map(Box::new(self.node())),
            19 => NodeType::Raw,
            _ => {
                let list = self.list();
                NodeType::List(Box::new(self.node()), list)
            }
        };
        let [atomic, granular, nullable, wrapped] = self.flags();
        Node {
            kind,
            atomic,
            granular,
            nullable,
            wrapped,
            default: self.option(Self::value),
            enum_values: self.many(Self::text),
            format: self.option(Self::text),
            definition: self.option(Self::text),
        }
    }

    fn list(&mut self) -> ListType {
        match self.size() {
            0 => ListType::Undeclared,
            1 => ListType::Atomic,
            2 => ListType::Set,
            _ => ListType::Map(self.many(Self::text)),
        }
    }

    fn resource(&mut self) -> ResourceFacts {
        let kind = self.kind();
        let plural = self.text();
        let singular = self.text();
        let short_names = self.many(Self::text);
        let categories = self.many(Self::text);
        let [namespaced, on_by_default, delete_returns_object] = self.flags();
        ResourceFacts {
            kind,
            plural,
            singular,
            short_names,
            categories,
            namespaced,
            verbs: self.many(Self::text),
            type_id: self.type_id(),
            list_kind: self.text(),
            list_type_id: self.option(Self::type_id),
            subresources: self.many(|reader| SubresourceFacts {
                name: reader.text(),
                kind: reader.kind(),
                verbs: reader.many(Self::text),
            }),
            storage: self.option(Self::storage),
            selectable: self.many(|reader| SelectableField {
                label: reader.text(),
                paths: reader.many(Self::text),
            }),
            unknown_label: match self.size() {
                0 => UnknownLabel::NotKnown,
                1 => UnknownLabel::NotSupported,
                2 => UnknownLabel::NotSupportedForKind,
                _ => UnknownLabel::NotSupportedForVersionKind,
            },
            on_by_default,
            delete_returns_object,
        }
    }

    fn storage(&mut self) -> StorageFacts {
        let prefix = self.text();
        let [json] = self.flags();
        StorageFacts {
            prefix,
            encoding: if json { StorageEncoding::Json } else { StorageEncoding::Protobuf },
            version: self.group_version(),
            version_hash: self.text(),
        }
    }

    fn kind(&mut self) -> GroupVersionKind {
        GroupVersionKind { group: self.text(), version: self.text(), kind: self.text() }
    }

    fn group_version(&mut self) -> GroupVersion {
        GroupVersion { group: self.text(), version: self.text() }
    }

    fn value(&mut self) -> Value {
        match self.size() {
            0 => Value::Bool(self.size() == 1),
            1 => Value::Number(Number::Int(self.number())),
            2 => Value::String(self.text()),
            _ => Value::object(),
        }
    }

    fn type_id(&mut self) -> TypeId {
        TypeId(self.size() as u32)
    }

    fn many<T>(&mut self, mut read: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.size()).map(|_| read(self)).collect()
    }

    fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.size() == 1).then(|| read(self))
    }

    fn text(&mut self) -> Str {
        let place = self.size();
        let size = self.size();
        Str::new_static(&self.texts[place..place + size])
    }

    fn flags<const N: usize>(&mut self) -> [bool; N] {
        let bits = self.size();
        std::array::from_fn(|at| bits >> at & 1 == 1)
    }

    fn number(&mut self) -> i64 {
        let folded = self.varint();
        (folded >> 1) as i64 ^ -((folded & 1) as i64)
    }

    fn size(&mut self) -> usize {
        self.varint() as usize
    }

    fn varint(&mut self) -> u64 {
        let mut value = 0;
        let mut shift = 0;
        loop {
            let (byte, rest) = self.stream.split_first().expect("the build script wrote all of it");
            self.stream = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return value;
            }
            shift += 7;
        }
    }
}
