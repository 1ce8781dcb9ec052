//! Parses `openAPIV3Schema`. Keywords that structural schemas do not support at all are an error
//! here; forbidden combinations are found by the structural rules.

use meta::{Map, Number, Str, Value};

use super::{
    node::{
        AdditionalProperties, DocKeywords, JsonType, StructuralNode, ValidationRule,
        ValueValidation,
    },
    pattern::Pattern,
};

/// How many schemas may be nested in one another. Everything that walks a schema recurses once for each, so
/// that a deeper one could exhaust the stack.
pub const SCHEMA_DEPTH_MAX: usize = 128;

pub(super) fn read(schema: &Value) -> Result<StructuralNode, String> {
    read_node(schema, SCHEMA_DEPTH_MAX)
}

/// Whether a schema as it is written in a definition is nested too deeply. Without recursion: it runs before
/// anything else looks at the schema.
pub fn is_too_deep(schema: &Value) -> bool {
    let mut rest = vec![(schema, 1)];
    while let Some((schema, depth)) = rest.pop() {
        let Some(schema) = schema.as_object() else { continue };
        if depth > SCHEMA_DEPTH_MAX {
            return true;
        }
        for (keyword, value) in schema.iter() {
            match (keyword.as_str(), value) {
                (
                    "items" | "additionalItems" | "additionalProperties" | "not",
                    Value::Object(_),
                ) => {
                    rest.push((value, depth + 1));
                }
                ("allOf" | "anyOf" | "oneOf" | "items", Value::Array(schemas)) => {
                    rest.extend(schemas.iter().map(|schema| (schema, depth + 1)));
                }
                (
                    "properties" | "patternProperties" | "definitions" | "dependencies",
                    Value::Object(schemas),
                ) => rest.extend(schemas.values().map(|schema| (schema, depth + 1))),
                _ => {}
            }
        }
    }
    false
}

fn read_node(schema: &Value, depth: usize) -> Result<StructuralNode, String> {
    static NOTHING: Map = Map::new();
    let Some(depth) = depth.checked_sub(1) else {
        return Err(format!("must not be nested more than {SCHEMA_DEPTH_MAX} levels deep"));
    };
    meta::cancel::checkpoint();
    let schema = schema.as_object().unwrap_or(&NOTHING);
    unsupported(schema)?;
    let value_validation = read_checks(schema, depth)?;
    let preserve_unknown = match schema.get("x-kubernetes-preserve-unknown-fields") {
        Some(Value::Bool(false)) => {
            let why = "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or \
                       undefined";
            return Err(why.to_owned());
        }
        given => given == Some(&Value::Bool(true)),
    };
    let mut node = StructuralNode {
        ty: JsonType::from(text(schema, "type")),
        nullable: flag(schema, "nullable"),
        default: schema.get("default").filter(|default| !default.is_null()).cloned().map(Box::new),
        preserve_unknown,
        embedded_resource: flag(schema, "x-kubernetes-embedded-resource"),
        int_or_string: flag(schema, "x-kubernetes-int-or-string"),
        list_type: boxed(schema, "x-kubernetes-list-type"),
        list_map_keys: strings(schema, "x-kubernetes-list-map-keys").into(),
        map_type: boxed(schema, "x-kubernetes-map-type"),
        validations: list(schema, "x-kubernetes-validations")
            .iter()
            .map(ValidationRule::read)
            .collect(),
        value_validation,
        doc_keywords: DocKeywords {
            title: !text(schema, "title").is_empty(),
            description: !text(schema, "description").is_empty(),
            others: is_given(schema, "example") || is_given(schema, "externalDocs"),
        },
        ..StructuralNode::default()
    };
    match schema.get("items") {
        Some(Value::Array(items)) if !items.is_empty() => {
            return Err("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
        }
        Some(items @ Value::Object(_)) => node.items = Some(Box::new(read_node(items, depth)?)),
        _ => {}
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties = properties.into_iter().flat_map(Map::iter);
    node.properties = properties
        .map(|(name, property)| Ok((name.clone(), read_node(property, depth)?)))
        .collect::<Result<_, String>>()?;
    node.additional_properties = match schema.get("additionalProperties") {
        Some(Value::Bool(false)) => AdditionalProperties::Forbidden,
        Some(Value::Bool(true)) => AdditionalProperties::Any,
        Some(additional @ Value::Object(_)) => {
            AdditionalProperties::Schema(Box::new(read_node(additional, depth)?))
        }
        _ => AdditionalProperties::None,
    };
    node.set_subtree_flags();
    Ok(node)
}

fn read_checks(schema: &Map, depth: usize) -> Result<Option<Box<ValueValidation>>, String> {
    if !schema.keys().any(|key| CHECKS.contains(&key.as_str())) {
        return Ok(None);
    }
    let alternatives = |name: &str| -> Result<Vec<StructuralNode>, String> {
        list(schema, name).iter().map(|alternative| read_node(alternative, depth)).collect()
    };
    let not = schema.get("not").filter(|not| !not.is_null());
    Ok(Some(Box::new(ValueValidation {
        format: text(schema, "format").into(),
        maximum: float(schema, "maximum"),
        exclusive_maximum: flag(schema, "exclusiveMaximum"),
        minimum: float(schema, "minimum"),
        exclusive_minimum: flag(schema, "exclusiveMinimum"),
        max_length: int(schema, "maxLength"),
        min_length: int(schema, "minLength"),
        pattern: Some(text(schema, "pattern")).filter(|text| !text.is_empty()).map(Pattern::new),
        max_items: int(schema, "maxItems"),
        min_items: int(schema, "minItems"),
        unique_items: flag(schema, "uniqueItems"),
        multiple_of: float(schema, "multipleOf"),
        enumeration: list(schema, "enum").to_vec(),
        max_properties: int(schema, "maxProperties"),
        min_properties: int(schema, "minProperties"),
        required: strings(schema, "required"),
        requires_nothing: schema
            .get("required")
            .is_some_and(|given| given.as_array().is_some_and(<[Value]>::is_empty)),
        all_of: alternatives("allOf")?,
        any_of: alternatives("anyOf")?,
        one_of: alternatives("oneOf")?,
        not: not.map(|not| read_node(not, depth)).transpose()?.map(Box::new),
        ..ValueValidation::default()
    })))
}

/// The keywords that [`ValueValidation`] holds.
const CHECKS: [&str; 20] = [
    "allOf",
    "anyOf",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "oneOf",
    "pattern",
    "required",
    "uniqueItems",
];

fn unsupported(schema: &Map) -> Result<(), String> {
    let given = [
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("patternProperties", "patternProperties"),
        ("dependencies", "dependencies"),
        ("additionalItems", "additionalItems"),
        ("definitions", "definitions"),
    ]
    .into_iter()
    .find(|(key, _)| match schema.get(key) {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Object(map)) => !map.is_empty() || *key == "additionalItems",
        Some(_) => true,
    });
    match given {
        Some((_, name)) => Err(format!("OpenAPIV3Schema '{name}' is not supported")),
        None => Ok(()),
    }
}

fn is_given(schema: &Map, name: &str) -> bool {
    schema.get(name).is_some_and(|value| !value.is_null())
}

fn text<'a>(schema: &'a Map, name: &str) -> &'a str {
    schema.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn flag(schema: &Map, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool).unwrap_or_default()
}

fn int(schema: &Map, name: &str) -> Option<i64> {
    schema.get(name)?.as_i64()
}

fn float(schema: &Map, name: &str) -> Option<f64> {
    match schema.get(name)? {
        Value::Number(Number::Int(value)) => Some(*value as f64),
        Value::Number(Number::Float(value)) => Some(*value),
        _ => None,
    }
}

fn list<'a>(schema: &'a Map, name: &str) -> &'a [Value] {
    schema.get(name).and_then(Value::as_array).unwrap_or_default()
}

fn strings(schema: &Map, name: &str) -> Vec<Str> {
    list(schema, name).iter().filter_map(string).collect()
}

fn boxed(schema: &Map, name: &str) -> Option<Box<str>> {
    schema.get(name).and_then(Value::as_str).map(Box::from)
}

fn string(value: &Value) -> Option<Str> {
    value.as_str().map(Str::from)
}
