//! Custom resources: a small kind, a large one, and the many definitions of a big platform.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::Template;

/// A kind with everything that is needed to make objects of it.
pub(crate) struct CustomKind {
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) list_kind: &'static str,
    pub(crate) crd: Bytes,
    pub(crate) template: Template,
}

const GROUP: &str = "bench.example.com";
/// The label of the definitions that stand for a platform's.
pub(crate) const PLATFORM_LABEL: &str = "bench-platform";
/// A platform's definitions are spread over so many groups.
const PLATFORM_GROUPS: usize = 50;

impl CustomKind {
    /// Of the objects in a namespace.
    pub(crate) fn path(&self, namespace: &str) -> String {
        format!("/apis/{GROUP}/v1/namespaces/{namespace}/{}", self.plural)
    }
}

/// A schema of a dozen fields, one CEL rule, objects of 1.5 KB as sent.
pub(crate) fn widgets() -> CustomKind {
    let text = json!({"type": "string", "maxLength": 256});
    let mut properties = sizing();
    properties.insert("parameters".into(), json!({"type": "object", "additionalProperties": text}));
    properties.insert("rules".into(), json!({"type": "array", "maxItems": 64, "items": rule()}));
    let spec = json!({
        "type": "object",
        "required": ["minReplicas", "maxReplicas"],
        "x-kubernetes-validations": [{
            "rule": "self.minReplicas <= self.maxReplicas",
            "message": "minReplicas must not exceed maxReplicas",
        }],
        "properties": properties,
    });
    let object = json!({
        "minReplicas": 1,
        "maxReplicas": 20,
        "parameters": parameters(),
        "rules": (0..8).map(a_rule).collect::<Vec<_>>(),
    });
    CustomKind {
        plural: "widgets",
        kind: "Widget",
        list_kind: "WidgetList",
        crd: crd(GROUP, "widgets", "Widget", &spec),
        template: template("Widget", &object),
    }
}

/// A schema of 200 fields, five CEL rules, objects of 2 KB as sent.
pub(crate) fn gadgets() -> CustomKind {
    let mut properties = sizing();
    properties.insert(
        "parameters".into(),
        json!({
            "type": "object",
            "maxProperties": 32,
            "additionalProperties": {"type": "string", "maxLength": 256},
        }),
    );
    properties.insert("rules".into(), json!({"type": "array", "maxItems": 16, "items": rule()}));
    properties.insert("host".into(), json!({"type": "string", "maxLength": 253}));
    for section in 0..SECTIONS {
        properties.insert(section_name(section), section_schema());
    }
    let spec = json!({
        "type": "object",
        "required": ["minReplicas", "maxReplicas", "host"],
        "x-kubernetes-validations": [
            {"rule": "self.minReplicas <= self.maxReplicas", "message": "minReplicas must not exceed maxReplicas"},
            {"rule": "self.host.endsWith('.example.com') && !self.host.startsWith('.')"},
            {"rule": "!has(self.rules) || self.rules.all(r, r.weight > 0 && r.weight <= 100)"},
            {"rule": "!has(self.parameters) || self.parameters.all(k, size(k) <= 63)"},
            {"rule": "!has(self.section0) || self.section0.enabled || self.section0.limit == 0", "reason": "FieldValueForbidden"},
        ],
        "properties": properties,
    });
    let mut object = json!({
        "minReplicas": 1,
        "maxReplicas": 20,
        "host": "checkout.shop.example.com",
        "parameters": parameters(),
        "rules": (0..4).map(a_rule).collect::<Vec<_>>(),
    });
    for section in 0..3 {
        object[section_name(section)] = a_section(section);
    }
    CustomKind {
        plural: "gadgets",
        kind: "Gadget",
        list_kind: "GadgetList",
        crd: crd(GROUP, "gadgets", "Gadget", &spec),
        template: template("Gadget", &object),
    }
}

/// A large kind has so many sections, each with [`SECTION_FIELDS`] fields and a few others.
const SECTIONS: usize = 10;
const SECTION_FIELDS: usize = 14;

fn section_name(section: usize) -> String {
    format!("section{section}")
}

fn section_schema() -> Value {
    let mut properties = Map::new();
    for field in 0..SECTION_FIELDS {
        let schema = match field % 4 {
            0 => json!({"type": "string", "maxLength": 128, "description": DESCRIPTION}),
            1 => {
                json!({"type": "integer", "format": "int32", "minimum": 0, "description": DESCRIPTION})
            }
            2 => json!({"type": "string", "pattern": "^[a-z0-9-]+$", "description": DESCRIPTION}),
            _ => json!({"type": "boolean", "description": DESCRIPTION}),
        };
        properties.insert(format!("field{field}"), schema);
    }
    properties.insert("enabled".into(), json!({"type": "boolean", "default": true}));
    properties.insert("limit".into(), json!({"type": "integer", "default": 0, "maximum": 1000}));
    properties.insert("mode".into(), json!({"type": "string", "enum": ["On", "Off", "Auto"]}));
    properties.insert("timeout".into(), json!({"type": "string", "format": "duration"}));
    json!({"type": "object", "properties": properties})
}

const DESCRIPTION: &str =
    "what this field is about, in a sentence as generators copy them from the source";

fn a_section(section: usize) -> Value {
    let mut fields = Map::new();
    for field in 0..SECTION_FIELDS {
        let value = match field % 4 {
            0 => json!(format!("text number {field} of section {section}")),
            1 => json!(field * 10),
            2 => json!(format!("name-{section}-{field}")),
            _ => json!(true),
        };
        fields.insert(format!("field{field}"), value);
    }
    fields.insert("mode".into(), json!("Auto"));
    fields.insert("timeout".into(), json!("30s"));
    Value::Object(fields)
}

/// Definition number `index` of a platform that has hundreds: 100 fields, 15 KB.
pub(crate) fn platform_crd(index: usize) -> Bytes {
    let sections = (0..5).map(|section| (section_name(section), section_schema()));
    let spec = json!({"type": "object", "properties": sections.collect::<Map<_, _>>()});
    let (plural, kind) = (format!("machines{index}"), format!("Machine{index}"));
    crd(&platform_group(index), &plural, &kind, &spec)
}

/// Where the objects of definition number `index` are.
pub(crate) fn platform_path(index: usize) -> String {
    format!("/apis/{}/v1/machines{index}", platform_group(index))
}

pub(crate) fn platform_group(index: usize) -> String {
    format!("platform{}.example.com", index % PLATFORM_GROUPS)
}

fn crd(group: &str, plural: &str, kind: &str, spec: &Value) -> Bytes {
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{group}"),
            "labels": {PLATFORM_LABEL: if group == GROUP { "no" } else { "yes" }},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "plural": plural,
                "singular": kind.to_lowercase(),
                "kind": kind,
                "listKind": format!("{kind}List"),
            },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "required": ["spec"],
                    "properties": {
                        "spec": spec,
                        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    },
                }},
            }],
        },
    });
    Bytes::from(crd.to_string())
}

fn template(kind: &str, spec: &Value) -> Template {
    Template::of(&json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": kind,
        "metadata": {
            "name": "@NAME@",
            "labels": {"app.kubernetes.io/name": "custom", "app.kubernetes.io/part-of": "shop"},
            "annotations": {"bench-index": "@INDEX@"},
        },
        "spec": spec,
    }))
}

fn sizing() -> Map<String, Value> {
    let properties = json!({
        "minReplicas": {"type": "integer", "minimum": 0},
        "maxReplicas": {"type": "integer", "maximum": 1000},
        "policy": {"type": "string", "enum": ["Fast", "Careful"], "default": "Careful"},
    });
    properties.as_object().cloned().unwrap_or_default()
}

fn rule() -> Value {
    let text = json!({"type": "string", "maxLength": 256});
    json!({
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": text,
            "match": {"type": "string", "pattern": "^[a-z*./-]+$"},
            "weight": {"type": "integer", "default": 1},
            "hosts": {"type": "array", "items": text},
        },
    })
}

fn a_rule(number: usize) -> Value {
    json!({
        "name": format!("rule-{number}"),
        "match": "/api/orders/*",
        "weight": 10 + number,
        "hosts": ["shop.example.com", "checkout.example.com"],
    })
}

fn parameters() -> Value {
    json!({
        "endpoint": "https://rates.example.com/v2/current",
        "currency": "EUR",
        "region": "eu-central-1",
        "refresh": "30s",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(schema: &Value) -> usize {
        match (&schema["properties"], &schema["items"]) {
            (Value::Object(fields), _) => fields.values().map(leaves).sum(),
            (_, items @ Value::Object(_)) => leaves(items),
            _ => 1,
        }
    }

    #[test]
    fn a_large_kind_has_two_hundred_fields_and_objects_of_two_kilobytes() {
        let gadgets = gadgets();
        let crd: Value = serde_json::from_slice(&gadgets.crd).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let spec = &schema["properties"]["spec"];
        let fields = leaves(schema);
        assert!((190..=210).contains(&fields), "{fields}");
        assert_eq!(spec["x-kubernetes-validations"].as_array().unwrap().len(), 5);
        let bytes = gadgets.template.custom(1).len();
        assert!((1_800..=2_500).contains(&bytes), "{bytes}");
    }
}
