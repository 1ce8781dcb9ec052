//! Custom resources in OpenAPI: their definitions come from their CRDs, not from types.

use std::{collections::HashMap, sync::Arc};

use meta::{Map, Str, Value, value};

use super::{
    Describe,
    definitions::{Dialect, group_version_kind},
};
use crate::ResourceFacts;

/// One served version of a custom resource, as its definition describes it.
#[derive(Debug)]
pub struct CustomResource {
    pub facts: ResourceFacts,
    /// `openAPIV3Schema` as JSON, because a tree takes ten times the memory; empty if there is
    /// none.
    pub schema: Arc<str>,
    /// Reads it.
    pub read: fn(&str) -> Value,
    /// Unknown fields are kept everywhere (old definitions).
    pub preserve_unknown: bool,
}

/// The definitions of custom resources by their names.
#[derive(Default)]
pub struct CustomDefinitions<'a>(HashMap<Str, Definition<'a>>);

#[derive(Clone, Copy)]
enum Definition<'a> {
    Object(&'a CustomResource),
    List(&'a CustomResource),
}

impl<'a> CustomDefinitions<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn of(resources: impl IntoIterator<Item = &'a CustomResource>) -> Self {
        let definitions = resources.into_iter().flat_map(|resource| {
            [
                (resource.definition(), Definition::Object(resource)),
                (resource.list_definition(), Definition::List(resource)),
            ]
        });
        Self(definitions.collect())
    }

    /// A definition, written out. References in it name definitions, without a folder.
    pub(super) fn write(
        &self,
        name: &str,
        dialect: Dialect,
        describe: &dyn Describe,
    ) -> Option<Map> {
        let writer = Writer { dialect, describe };
        Some(match self.0.get(name)? {
            Definition::Object(resource) => writer.object(resource),
            Definition::List(resource) => writer.list(resource),
        })
    }
}

impl CustomResource {
    /// `com.example.stable.v1.Shirt`
    pub fn definition(&self) -> Str {
        self.named(&self.facts.kind.kind)
    }

    pub fn list_definition(&self) -> Str {
        self.named(&self.facts.list_kind)
    }

    fn named(&self, kind: &str) -> Str {
        let group: Vec<&str> = self.facts.kind.group.split('.').rev().collect();
        format!("{}.{}.{kind}", group.join("."), self.facts.kind.version).into()
    }

    fn selectable(&self) -> Vec<Value> {
        let fields = self.facts.selectable.iter();
        let own = fields.filter(|field| !field.label.starts_with("metadata."));
        own.map(|field| value!({"fieldPath": (field.label.clone())})).collect()
    }
}

struct Writer<'a> {
    dialect: Dialect,
    describe: &'a dyn Describe,
}

/// Any kind will do: the fields that all kinds have are described alike.
const SAMPLE: &str = "io.k8s.api.core.v1.ConfigMap";
const SAMPLE_LIST: &str = "io.k8s.api.core.v1.ConfigMapList";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

impl Writer<'_> {
    fn object(&self, resource: &CustomResource) -> Map {
        let schema = (resource.read)(&resource.schema);
        let open =
            resource.preserve_unknown || schema.bool_at(&["x-kubernetes-preserve-unknown-fields"]);
        // Clients of v2 take the properties that they see for all there are.
        let mut written = if schema.is_null() || (self.dialect == Dialect::V2 && open) {
            Map::from_iter([("type", "object")])
        } else {
            let mut written = self.node(&schema);
            self.add_type_meta(&mut written, SAMPLE, OBJECT_META);
            written
        };
        let kind = group_version_kind(&resource.facts.kind);
        written.insert("x-kubernetes-group-version-kind", vec![kind]);
        add_selectable(&mut written, resource);
        written
    }

    fn list(&self, resource: &CustomResource) -> Map {
        let ResourceFacts { kind, list_kind, plural, .. } = &resource.facts;
        let items = value!({
            "description": (format!("the {plural} of the list")),
            "type": "array",
            "items": {"$ref": (resource.definition())},
        });
        let mut written = Map::new();
        written.insert("description", format!("{list_kind} is a list of {}", kind.kind));
        written.insert("type", "object");
        written.insert("required", vec!["items"]);
        written.insert("properties", Map::from_iter([("items", items)]));
        self.add_type_meta(&mut written, SAMPLE_LIST, LIST_META);
        let list = kind.group_version().with_kind(list_kind);
        written.insert("x-kubernetes-group-version-kind", vec![group_version_kind(&list)]);
        add_selectable(&mut written, resource);
        written
    }

    fn add_type_meta(&self, written: &mut Map, sample: &str, metadata: &str) {
        let described = |field: &str, mut value: Map| {
            if let Some(text) = self.describe.field(sample, field) {
                value.insert("description", text.as_ref());
            }
            Value::Object(value)
        };
        let text = || Map::from_iter([("type", "string")]);
        let reference = Map::from_iter([("$ref", metadata)]);
        let fields = [
            ("apiVersion", described("apiVersion", text())),
            ("kind", described("kind", text())),
            ("metadata", described("metadata", reference)),
        ];
        if written.get("properties").is_none() {
            written.insert("properties", Map::new());
        }
        if let Some(properties) = written.get_mut("properties").and_then(Value::as_object_mut) {
            for (name, field) in fields {
                properties.insert(name, field);
            }
        }
    }

    /// A schema of a definition, without keywords that are for validation only or that v2 does not
    /// support.
    fn node(&self, schema: &Value) -> Map {
        let Some(schema) = schema.as_object() else { return Map::new() };
        let v2 = self.dialect == Dialect::V2;
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool) == Some(true);
        let mut written = Map::new();
        for (name, value) in schema.iter() {
            let value = match name.as_str() {
                "properties" => self.properties(value),
                "items" | "additionalProperties" if value.as_object().is_some() => {
                    Value::Object(self.node(value))
                }
                "allOf" | "anyOf" | "oneOf" | "not" | "default" if v2 => continue,
                "example" | "externalDocs" | "$schema" | "id" => continue,
                _ => value.clone(),
            };
            written.insert(name, value);
        }
        if flag("x-kubernetes-int-or-string") && !v2 && written.get("anyOf").is_none() {
            let either = ["integer", "string"].map(|name| value!({"type": (name)}));
            written.insert("anyOf", either.to_vec());
        }
        if flag("x-kubernetes-embedded-resource") && !(v2 && flag(PRESERVE)) {
            self.add_embedded(&mut written);
        }
        if v2 {
            loosen(&mut written, flag("nullable"), flag(PRESERVE), schema);
        }
        written
    }

    fn properties(&self, properties: &Value) -> Value {
        let Some(properties) = properties.as_object() else { return Value::object() };
        let written = properties.iter();
        let written = written.map(|(name, node)| (name.clone(), Value::Object(self.node(node))));
        Value::Object(written.collect::<Map>())
    }

    fn add_embedded(&self, written: &mut Map) {
        self.add_type_meta(written, SAMPLE, OBJECT_META);
        let mut required: Vec<Value> =
            written.get("required").and_then(Value::as_array).unwrap_or_default().to_vec();
        for name in ["kind", "apiVersion"] {
            if !required.iter().any(|known| known.as_str() == Some(name)) {
                required.push(name.into());
            }
        }
        written.insert("required", required);
    }
}

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// v2 cannot express nullable and additional fields: such nodes are left open.
fn loosen(written: &mut Map, nullable: bool, preserve: bool, schema: &Map) {
    if nullable {
        written.remove("type");
        written.remove("nullable");
    }
    if nullable || preserve {
        written.remove("items");
        written.remove("properties");
    }
    let ty = written.get("type").and_then(Value::as_str);
    let bare_array = ty == Some("array") && written.get("items").is_none();
    if bare_array || (preserve && ty == Some("object")) {
        written.remove("type");
    }
    let is_nullable = |name: &str| {
        let property = schema.get("properties").and_then(|properties| properties.get(name));
        property.is_some_and(|property| property.bool_at(&["nullable"]))
    };
    if let Some(required) = written.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| !name.as_str().is_some_and(is_nullable));
        if required.is_empty() {
            written.remove("required");
        }
    }
}

fn add_selectable(written: &mut Map, resource: &CustomResource) {
    let selectable = resource.selectable();
    if !selectable.is_empty() {
        written.insert("x-kubernetes-selectable-fields", selectable);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi::NoDescriptions;

    #[test]
    fn v2_leaves_nullable_and_open_nodes_untyped() {
        let schema = value!({"type": "object", "required": ["a", "b"], "properties": {
            "a": {"type": "object", "nullable": true, "properties": {"x": {"type": "string"}}},
            "b": {"type": "string", "default": "y", "anyOf": [{"pattern": "z"}]},
            "c": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "d": {"x-kubernetes-int-or-string": true},
        }});
        let cases = [
            (
                Dialect::V2,
                r#"{"properties":{"a":{},"b":{"type":"string"},"c":{"x-kubernetes-preserve-unknown-fields":true},"d":{"x-kubernetes-int-or-string":true}},"required":["b"],"type":"object"}"#,
            ),
            (
                Dialect::V3,
                r#"{"properties":{"a":{"nullable":true,"properties":{"x":{"type":"string"}},"type":"object"},"b":{"anyOf":[{"pattern":"z"}],"default":"y","type":"string"},"c":{"type":"object","x-kubernetes-preserve-unknown-fields":true},"d":{"anyOf":[{"type":"integer"},{"type":"string"}],"x-kubernetes-int-or-string":true}},"required":["a","b"],"type":"object"}"#,
            ),
        ];
        for (dialect, expected) in cases {
            let written = Writer { dialect, describe: &NoDescriptions }.node(&schema);
            assert_eq!(meta::json::to_string(&Value::Object(written)), expected);
        }
    }
}
