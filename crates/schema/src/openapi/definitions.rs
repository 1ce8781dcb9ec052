//! Types, written out as OpenAPI definitions, and with them all the types that they refer to.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use meta::{GroupVersion, GroupVersionKind, Map, Str, Value, value};

use super::assemble::EncodedMembers;
use super::{Describe, DocumentSource};
use crate::{Field, ListType, Node, NodeType, Presence, Type, TypeId};

/// What v2 and v3 write differently.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    V2,
    V3,
}

/// Writes definitions.
pub(super) struct Definitions<'a> {
    source: DocumentSource<'a>,
    dialect: Dialect,
    /// The group version that the document is about.
    home: Option<&'a GroupVersion>,
    /// Everything that was referred to.
    known: HashSet<Str>,
    /// What of it is not written yet.
    open: Vec<Str>,
    /// Definitions that are no objects, by the way they are used.
    scalars: HashMap<Str, &'a NodeType>,
}

impl<'a> Definitions<'a> {
    pub(super) fn describe(&self) -> &'a dyn Describe {
        self.source.describe
    }

    pub(super) fn new(
        source: DocumentSource<'a>,
        dialect: Dialect,
        home: Option<&'a GroupVersion>,
    ) -> Self {
        Self {
            source,
            dialect,
            home,
            known: HashSet::new(),
            open: Vec::new(),
            scalars: HashMap::new(),
        }
    }

    /// A reference to a definition, which is written as well.
    pub(super) fn reference(&mut self, definition: &Str) -> Value {
        if self.known.insert(definition.clone()) {
            self.open.push(definition.clone());
        }
        let folder = match self.dialect {
            Dialect::V2 => "#/definitions/",
            Dialect::V3 => "#/components/schemas/",
        };
        value!({"$ref": (format!("{folder}{definition}"))})
    }

    /// Writes all definitions that were referred to.
    pub(super) fn finish(mut self, encode: impl Fn(&Value) -> Vec<u8>) -> EncodedMembers {
        let mut members = EncodedMembers::new();
        while let Some(name) = self.open.pop() {
            let definition = match self.custom(&name) {
                Some(definition) => definition,
                None => self.known(&name),
            };
            let member = encode(&definition.into());
            members.insert(name, member);
        }
        members
    }

    fn known(&mut self, name: &Str) -> Map {
        let mut definition = match self.source.schema.by_name(name) {
            Some(id) => self.object(id),
            None => self.scalar(name),
        };
        let text = self.source.describe.definition(name);
        set_description(&mut definition, text.as_deref());
        definition
    }

    /// The definition of a custom resource, with references to what it needs.
    fn custom(&mut self, name: &str) -> Option<Map> {
        let DocumentSource { custom, describe, .. } = self.source;
        let written = custom.write(name, self.dialect, describe)?;
        let Value::Object(written) = self.resolve(Value::Object(written)) else { return None };
        Some(written)
    }

    /// Names of definitions become references to them.
    fn resolve(&mut self, value: Value) -> Value {
        match value {
            Value::Object(mut map) => {
                let named = map.get("$ref").and_then(Value::as_str).map(Str::new);
                if let Some(name) = named {
                    let reference = self.reference(&name);
                    map.insert("$ref", reference.get("$ref").cloned().unwrap_or_default());
                    return self.wrap_reference(map);
                }
                let pairs: Vec<(Str, Value)> =
                    map.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
                let resolved = pairs.into_iter().map(|(key, value)| (key, self.resolve(value)));
                Value::Object(resolved.collect::<Map>())
            }
            Value::Array(items) => {
                Value::Array(items.into_iter().map(|item| self.resolve(item)).collect())
            }
            other => other,
        }
    }

    fn object(&mut self, id: TypeId) -> Map {
        let schema = self.source.schema;
        let ty = schema.get(id);
        let mut written = Map::new();
        written.insert("type", "object");
        let mut properties = Vec::with_capacity(ty.fields.len());
        for field in &ty.fields {
            properties.push((field.name.clone(), self.property(ty, field)));
        }
        if !properties.is_empty() {
            written.insert("properties", Map::from_pairs(properties));
        }
        let required: Vec<Str> = ty
            .fields
            .iter()
            .filter(|field| field.required)
            .map(|field| field.name.clone())
            .collect();
        if !required.is_empty() {
            written.insert("required", required);
        }
        if ty.atomic {
            written.insert("x-kubernetes-map-type", "atomic");
        }
        if ty.preserve_unknown {
            written.insert("x-kubernetes-preserve-unknown-fields", true);
        }
        let kinds = self.kinds(ty);
        if !kinds.is_empty() {
            written.insert("x-kubernetes-group-version-kind", kinds);
        }
        if !ty.unions.is_empty() {
            written.insert("x-kubernetes-unions", ty.unions.iter().map(union).collect::<Vec<_>>());
        }
        written
    }

    /// Options and watch events are a kind of every group version. A document about one of them tells
    /// of that one, and of the version that they have in common.
    fn kinds(&self, ty: &Type) -> Vec<Value> {
        let is_listed = |kind: &&GroupVersionKind| match self.home {
            Some(home) if ty.kinds.len() > 1 => {
                let group_version = kind.group_version();
                group_version == *home || group_version == GroupVersion::new("", "v1")
            }
            _ => true,
        };
        let mut kinds: Vec<_> = ty.kinds.iter().filter(is_listed).collect();
        kinds.sort();
        kinds.into_iter().map(group_version_kind).collect()
    }

    fn property(&mut self, ty: &Type, field: &'a Field) -> Value {
        let mut written = self.node(&field.node);
        if self.dialect == Dialect::V3
            && let Some(default) = default_of(field)
        {
            written.insert("default", default);
        }
        let text = self.source.describe.field(&ty.name, &field.name);
        let text = text.map(|text| with_enum_values(text, &field.node.enum_values));
        set_description(&mut written, text.as_deref());
        self.add_merging(field, &mut written);
        self.wrap_reference(written)
    }

    /// How lists and maps are merged.
    fn add_merging(&self, field: &Field, written: &mut Map) {
        let node = &field.node;
        if let NodeType::List(_, list) = &node.kind {
            let name = match list {
                ListType::Undeclared => None,
                ListType::Atomic => Some("atomic"),
                ListType::Set => Some("set"),
                ListType::Map(keys) => {
                    written.insert("x-kubernetes-list-map-keys", keys.clone());
                    Some("map")
                }
            };
            if let Some(name) = name {
                written.insert("x-kubernetes-list-type", name);
            }
        }
        let is_atomic_type =
            matches!(node.kind, NodeType::Object(id) if self.source.schema.get(id).atomic);
        if node.granular {
            written.insert("x-kubernetes-map-type", "granular");
        } else if node.atomic && !is_atomic_type {
            written.insert("x-kubernetes-map-type", "atomic");
        }
        let patch = &field.patch;
        let strategies =
            [(patch.merge, "merge"), (patch.replace, "replace"), (patch.retain_keys, "retainKeys")];
        let strategies: Vec<_> =
            strategies.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
        if !strategies.is_empty() {
            written.insert("x-kubernetes-patch-strategy", strategies.join(","));
        }
        if let Some(key) = &patch.merge_key {
            written.insert("x-kubernetes-patch-merge-key", key.clone());
        }
    }

    /// In v3 a reference must not have siblings.
    fn wrap_reference(&self, mut written: Map) -> Value {
        if self.dialect == Dialect::V3
            && written.len() > 1
            && let Some(reference) = written.remove("$ref")
        {
            written.insert("allOf", vec![value!({"$ref": (reference)})]);
        }
        written.into()
    }

    fn node(&mut self, node: &'a Node) -> Map {
        if let Some(name) = self.named(node) {
            let Value::Object(reference) = self.reference(&name) else { unreachable!("an object") };
            return reference;
        }
        let mut written = match &node.kind {
            // A type without a name belongs to where it is used.
            NodeType::Object(id) => self.object(*id),
            NodeType::List(item, _) => {
                let item = self.item(item);
                Map::from_iter([("type", "array".into()), ("items", item)])
            }
            NodeType::Map(item) => {
                let item = self.item(item);
                Map::from_iter([("type", "object".into()), ("additionalProperties", item)])
            }
            simple => self.simple(simple),
        };
        if let Some(format) = &node.format {
            written.insert("format", format.clone());
        }
        if !node.enum_values.is_empty() {
            written.insert("enum", node.enum_values.clone());
        }
        if node.nullable && self.dialect == Dialect::V3 {
            written.insert("nullable", true);
        }
        written
    }

    /// The definition that a node refers to.
    fn named(&mut self, node: &'a Node) -> Option<Str> {
        if let Some(name) = &node.definition {
            self.scalars.insert(name.clone(), &node.kind);
            return Some(name.clone());
        }
        match node.kind {
            NodeType::Object(id) => {
                Some(self.source.schema.get(id).name.clone()).filter(|name| !name.is_empty())
            }
            _ => None,
        }
    }

    fn item(&mut self, item: &'a Node) -> Value {
        let mut written = self.node(item);
        if self.dialect == Dialect::V3
            && let Some(zero) = zero(&item.kind)
        {
            written.insert("default", zero);
        }
        self.wrap_reference(written)
    }

    /// A definition that is no object.
    fn scalar(&self, name: &str) -> Map {
        match self.scalars.get(name) {
            // Arbitrary JSON may be anything; extensions and sets of fields are always objects.
            Some(NodeType::Raw) => typed("object", None),
            Some(NodeType::Any) if name.rsplit('.').next() != Some("JSON") => typed("object", None),
            Some(kind) => self.simple(kind),
            None => Map::new(),
        }
    }

    /// What has no types inside.
    fn simple(&self, kind: &NodeType) -> Map {
        match kind {
            NodeType::AnyObject => typed("object", None),
            NodeType::Bool => typed("boolean", None),
            NodeType::Int32 => typed("integer", Some("int32")),
            NodeType::Int64 => typed("integer", Some("int64")),
            NodeType::Double => typed("number", Some("double")),
            NodeType::String | NodeType::Duration => typed("string", None),
            NodeType::Bytes => typed("string", Some("byte")),
            NodeType::Time | NodeType::MicroTime => typed("string", Some("date-time")),
            NodeType::Quantity => self.either(["string", "number"], None),
            NodeType::IntOrString => self.either(["integer", "string"], Some("int-or-string")),
            _ => Map::new(),
        }
    }

    /// A union of two types. v2 cannot express it and documents the one that clients mostly send.
    fn either(&self, types: [&str; 2], format: Option<&str>) -> Map {
        if self.dialect == Dialect::V2 {
            return typed("string", format);
        }
        let types = types.map(|name| value!({"type": (name)})).to_vec();
        let mut written = Map::from_iter([("oneOf", types)]);
        if let Some(format) = format {
            written.insert("format", format);
        }
        written
    }
}

fn typed(name: &str, format: Option<&str>) -> Map {
    let mut written = Map::from_iter([("type", name)]);
    if let Some(format) = format {
        written.insert("format", format);
    }
    written
}

/// Adds the values that a field may have to what is said about it. What each of them means is not known here.
fn with_enum_values<'a>(text: Cow<'a, str>, values: &[Str]) -> Cow<'a, str> {
    if values.is_empty() {
        return text;
    }
    let mut text = format!("{text}\n\nPossible enum values:");
    for value in values {
        let _ = write!(text, "\n - `\"{value}\"`");
    }
    Cow::Owned(text)
}

fn set_description(written: &mut Map, text: Option<&str>) {
    if let Some(text) = text {
        written.insert("description", text);
    }
}

/// The default that is declared, or the zero value of what Go always prints.
fn default_of(field: &Field) -> Option<Value> {
    if let Some(default) = &field.node.default {
        return Some(default.clone());
    }
    let always =
        field.presence == Presence::Always || matches!(field.node.kind, NodeType::Object(_));
    if field.pointer || !always { None } else { zero(&field.node.kind) }
}

fn zero(kind: &NodeType) -> Option<Value> {
    match kind {
        NodeType::Object(_) => Some(Value::object()),
        NodeType::String => Some("".into()),
        NodeType::Int32 | NodeType::Int64 | NodeType::Double => Some(0.into()),
        NodeType::Bool => Some(false.into()),
        _ => None,
    }
}

pub(super) fn group_version_kind(kind: &GroupVersionKind) -> Value {
    value!({
        "group": (kind.group.clone()),
        "version": (kind.version.clone()),
        "kind": (kind.kind.clone()),
    })
}

fn union(union: &crate::Union) -> Value {
    let fields: Map = union
        .fields
        .iter()
        .map(|field| {
            let mut chars = field.chars();
            let name: String = chars
                .next()
                .map(|first| first.to_ascii_uppercase())
                .into_iter()
                .chain(chars)
                .collect();
            (field.clone(), Value::from(name))
        })
        .collect();
    let mut written = Map::new();
    if let Some(discriminator) = &union.discriminator {
        written.insert("discriminator", discriminator.clone());
    }
    written.insert("fields-to-discriminateBy", fields);
    written.into()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::openapi::{CustomDefinitions, NoDescriptions};
    use crate::{PatchStrategy, Schema};

    fn field(name: &str, kind: NodeType) -> Field {
        Field { name: Str::new(name), node: kind.into(), ..Field::default() }
    }

    /// A schema with one type of each sort: named, nameless, and known by a definition only.
    fn schema() -> Schema {
        let mut schema = Schema::default();
        let mut named = Type::default();
        named.name = "Named".into();
        named.atomic = true;
        let named = schema.add(named);
        let mut nameless = Type::default();
        nameless.fields.push(field("a", NodeType::Bool));
        let nameless = schema.add(nameless);
        let mut time = field("time", NodeType::Time);
        time.node.definition = Some("Time".into());
        let mut keys =
            field("keys", NodeType::List(Box::default(), ListType::Map(vec!["k".into()])));
        keys.patch = PatchStrategy { merge: true, retain_keys: true, ..PatchStrategy::default() };
        keys.required = true;
        let mut pointer = field("pointer", NodeType::Object(named));
        pointer.pointer = true;
        let mut root = Type::default();
        root.name = "Root".into();
        root.fields = vec![
            field("nameless", NodeType::Map(Box::new(NodeType::Object(nameless).into()))),
            field("named", NodeType::Object(named)),
            field("port", NodeType::IntOrString),
            pointer,
            time,
            keys,
        ];
        schema.add(root);
        schema
    }

    #[track_caller]
    fn check(dialect: Dialect, expected: &[(&str, &str)]) {
        let schema = schema();
        let custom = CustomDefinitions::default();
        let (describe, version) = (&NoDescriptions, "1");
        let source = DocumentSource { schema: &schema, describe, custom: &custom, version };
        let mut definitions = Definitions::new(source, dialect, None);
        definitions.reference(&"Root".into());
        let written = RefCell::new(Vec::new());
        let members = definitions.finish(|definition| {
            written.borrow_mut().push(definition.clone());
            vec![written.borrow().len() as u8 - 1]
        });
        for (path, expected) in expected {
            let (name, path) = path.split_once('/').unwrap_or((path, ""));
            let path: Vec<&str> = path.split('/').filter(|step| !step.is_empty()).collect();
            let definition = &written.borrow()[usize::from(members[name][0])];
            let found = definition.at(&path).map(meta::json::to_string);
            assert_eq!(found.as_deref(), Some(*expected), "{name} {path:?}");
        }
    }

    #[test]
    fn v2_references_may_have_siblings() {
        check(
            Dialect::V2,
            &[
                ("Root/properties/named", r##"{"$ref":"#/definitions/Named"}"##),
                ("Root/properties/port", r#"{"format":"int-or-string","type":"string"}"#),
                ("Root/required", r#"["keys"]"#),
                ("Time", r#"{"format":"date-time","type":"string"}"#),
                ("Named", r#"{"type":"object","x-kubernetes-map-type":"atomic"}"#),
            ],
        );
    }

    #[test]
    fn v3_wraps_references_and_publishes_defaults() {
        check(
            Dialect::V3,
            &[
                (
                    "Root/properties/named",
                    r##"{"allOf":[{"$ref":"#/components/schemas/Named"}],"default":{}}"##,
                ),
                ("Root/properties/pointer", r##"{"$ref":"#/components/schemas/Named"}"##),
                (
                    "Root/properties/port",
                    r#"{"format":"int-or-string","oneOf":[{"type":"integer"},{"type":"string"}]}"#,
                ),
                (
                    "Root/properties/nameless/additionalProperties/properties/a",
                    r#"{"type":"boolean"}"#,
                ),
                ("Root/properties/keys/x-kubernetes-list-map-keys", r#"["k"]"#),
                ("Root/properties/keys/x-kubernetes-list-type", r#""map""#),
                ("Root/properties/keys/x-kubernetes-patch-strategy", r#""merge,retainKeys""#),
            ],
        );
    }
}
