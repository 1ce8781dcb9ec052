//! The blob: texts, each once, then everything else as a stream of variable-length integers that refer
//! to them. `src/definitions.rs` reads it in the same order; the two change together.

use std::collections::HashMap;

use meta::{GroupVersion, GroupVersionKind, Number, Str, Value};
use schema::{
    Field, ListType, Node, NodeType, Presence, ResourceFacts, StorageEncoding, Type, UnknownLabel,
};

use crate::Definitions;

pub(super) fn blob(definitions: &Definitions) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.many(definitions.schema.types(), |writer, (_, ty)| writer.ty(ty));
    writer.many(&definitions.group_versions, |writer, facts| {
        writer.group_version(&facts.group_version);
        writer.number(i64::from(facts.group_priority));
        writer.number(i64::from(facts.version_priority));
        writer.flags(&[facts.on_by_default, facts.internal]);
    });
    writer.many(&definitions.resources, Writer::resource);
    let mut blob = (writer.texts.len() as u32).to_le_bytes().to_vec();
    blob.extend(writer.texts.into_bytes());
    blob.extend(writer.stream);
    blob
}

#[derive(Default)]
struct Writer {
    texts: String,
    places: HashMap<Str, usize>,
    stream: Vec<u8>,
}

impl Writer {
    fn ty(&mut self, ty: &Type) {
        self.text(&ty.name);
        self.flags(&[ty.atomic]);
        self.many(&ty.kinds, Self::kind);
        self.many(&ty.unions, |writer, union| {
            writer.option(union.discriminator.as_ref(), Self::text);
            writer.many(&union.fields, Self::text);
        });
        self.many(&ty.fields, Self::field);
    }

    fn field(&mut self, field: &Field) {
        self.text(&field.name);
        self.size(field.tag as usize);
        self.many(&field.within, |writer, tag| writer.size(*tag as usize));
        let patch = &field.patch;
        self.flags(&[field.required, field.pointer, patch.merge, patch.retain_keys, patch.replace]);
        self.size(match field.presence {
            Presence::AsGiven => 0,
            Presence::OmitEmpty => 1,
            Presence::Always => 2,
        });
        self.option(patch.merge_key.as_ref(), Self::text);
        self.node(&field.node);
    }

    fn node(&mut self, node: &Node) {
        match &node.kind {
            NodeType::Any => self.size(0),
            NodeType::AnyObject => self.size(1),
            NodeType::Bool => self.size(2),
            NodeType::Int32 => self.size(3),
            NodeType::Int64 => self.size(4),
            NodeType::Double => self.size(5),
            NodeType::String => self.size(6),
            NodeType::Bytes => self.size(7),
            NodeType::Time => self.size(8),
            NodeType::MicroTime => self.size(9),
            NodeType::Duration => self.size(10),
            NodeType::Quantity => self.size(11),
            NodeType::IntOrString => self.size(12),
            NodeType::Object(id) => self.sizes([13, id.0]),
            NodeType::SchemaOrBool(id) => self.sizes([14, id.0]),
            NodeType::SchemaOrArray(id) => self.sizes([15, id.0]),
            NodeType::SchemaOrStringArray(id) => self.sizes([16, id.0]),
            NodeType::Map(item) => {
                self.size(17);
                self.node(item);
            }
            NodeType::List(item, list) => {
                self.size(18);
                self.list(list);
                self.node(item);
            }
            NodeType::Raw => self.size(19),
        }
        self.flags(&[node.atomic, node.granular, node.nullable, node.wrapped]);
        self.option(node.default.as_ref(), Self::value);
        self.many(&node.enum_values, Self::text);
        self.option(node.format.as_ref(), Self::text);
        self.option(node.definition.as_ref(), Self::text);
    }

    fn list(&mut self, list: &ListType) {
        match list {
            ListType::Undeclared => self.size(0),
            ListType::Atomic => self.size(1),
            ListType::Set => self.size(2),
            ListType::Map(keys) => {
                self.size(3);
                self.many(keys, Self::text);
            }
        }
    }

    fn resource(&mut self, resource: &ResourceFacts) {
        self.kind(&resource.kind);
        self.text(&resource.plural);
        self.text(&resource.singular);
        self.many(&resource.short_names, Self::text);
        self.many(&resource.categories, Self::text);
        self.flags(&[resource.namespaced, resource.on_by_default, resource.delete_returns_object]);
        self.many(&resource.verbs, Self::text);
        self.size(resource.type_id.0 as usize);
        self.text(&resource.list_kind);
        self.option(resource.list_type_id.as_ref(), |writer, id| writer.size(id.0 as usize));
        self.many(&resource.subresources, |writer, subresource| {
            writer.text(&subresource.name);
            writer.kind(&subresource.kind);
            writer.many(&subresource.verbs, Self::text);
        });
        self.option(resource.storage.as_ref(), |writer, storage| {
            writer.text(&storage.prefix);
            writer.flags(&[storage.encoding == StorageEncoding::Json]);
            writer.group_version(&storage.version);
            writer.text(&storage.version_hash);
        });
        self.many(&resource.selectable, |writer, field| {
            writer.text(&field.label);
            writer.many(&field.paths, Self::text);
        });
        self.size(match resource.unknown_label {
            UnknownLabel::NotKnown => 0,
            UnknownLabel::NotSupported => 1,
            UnknownLabel::NotSupportedForKind => 2,
            UnknownLabel::NotSupportedForVersionKind => 3,
        });
    }

    fn kind(&mut self, kind: &GroupVersionKind) {
        self.text(&kind.group);
        self.text(&kind.version);
        self.text(&kind.kind);
    }

    fn group_version(&mut self, group_version: &GroupVersion) {
        self.text(&group_version.group);
        self.text(&group_version.version);
    }

    /// Defaults are scalars or empty objects.
    fn value(&mut self, value: &Value) {
        match value {
            Value::Bool(bool) => self.sizes([0, u32::from(*bool)]),
            Value::Number(Number::Int(number)) => {
                self.size(1);
                self.number(*number);
            }
            Value::String(text) => {
                self.size(2);
                self.text(text);
            }
            Value::Object(object) if object.is_empty() => self.size(3),
            other => panic!("{other:?} can't be a default yet"),
        }
    }

    fn many<T>(
        &mut self,
        items: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
        write: impl Fn(&mut Self, T),
    ) {
        let items = items.into_iter();
        self.size(items.len());
        items.for_each(|item| write(self, item));
    }

    fn option<T>(&mut self, item: Option<T>, write: impl Fn(&mut Self, T)) {
        self.many(item.into_iter().collect::<Vec<_>>(), write);
    }

    fn text(&mut self, text: &Str) {
        let place = *self.places.entry(text.clone()).or_insert_with(|| {
            let place = self.texts.len();
            self.texts.push_str(text);
            place
        });
        self.size(place);
        self.size(text.len());
    }

    fn flags(&mut self, flags: &[bool]) {
        self.size(flags.iter().rev().fold(0, |bits, flag| bits << 1 | usize::from(*flag)));
    }

    fn sizes(&mut self, sizes: [u32; 2]) {
        for size in sizes {
            self.size(size as usize);
        }
    }

    fn number(&mut self, number: i64) {
        self.varint((number << 1 ^ number >> 63) as u64);
    }

    fn size(&mut self, size: usize) {
        self.varint(size as u64);
    }

    fn varint(&mut self, mut rest: u64) {
        while rest >= 0x80 {
            self.stream.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.stream.push(rest as u8);
    }
}
