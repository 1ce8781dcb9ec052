//! The CEL declarations of a structural schema.

use std::sync::Arc;

use cel::{Decl, ListType};
use meta::Value;

use super::node::{AdditionalProperties, JsonType, StructuralNode, ValueValidation};

/// The declaration of a node; None if the schema is too unspecific for CEL. `resource`: the root of
/// an object, which always has its name and type.
pub(super) fn declare(node: &StructuralNode, resource: bool) -> Option<Arc<Decl>> {
    let value_validation = node.value_validation.as_deref();
    let max_length =
        value_validation.and_then(|value_validation| value_validation.max_length).map(non_negative);
    if node.int_or_string {
        return Some(Arc::new(Decl::int_or_string(max_length).nullable(node.nullable)));
    }
    let decl = match node.ty {
        JsonType::Array => {
            let items = node.items.as_deref()?;
            let items = declare(items, items.embedded_resource)?;
            let max = value_validation
                .and_then(|value_validation| value_validation.max_items)
                .map(non_negative);
            Decl::list(items, list_kind(node), max)
        }
        JsonType::Object => match &node.additional_properties {
            AdditionalProperties::Schema(values) => {
                let values = declare(values, values.embedded_resource)?;
                let max = value_validation
                    .and_then(|value_validation| value_validation.max_properties)
                    .map(non_negative);
                Decl::map(values, max)
            }
            _ => declare_object(node, value_validation, resource),
        },
        JsonType::String => declare_string(value_validation, max_length),
        JsonType::Boolean => Decl::bool(),
        JsonType::Number => Decl::double(),
        JsonType::Integer => Decl::int(),
        JsonType::None | JsonType::Other(_) => return None,
    };
    Some(Arc::new(decl.nullable(node.nullable)))
}

fn declare_string(value_validation: Option<&ValueValidation>, max_length: Option<u64>) -> Decl {
    match value_validation.map_or("", |value_validation| &value_validation.format) {
        "byte" => Decl::bytes(max_length),
        "duration" => Decl::duration(),
        "date" => Decl::date(),
        "date-time" => Decl::date_time(),
        _ => match value_validation
            .filter(|value_validation| !value_validation.enumeration.is_empty())
        {
            Some(value_validation) if max_length.is_none() => {
                Decl::string_enum(value_validation.enumeration.iter().filter_map(Value::as_str))
            }
            _ => Decl::string(max_length),
        },
    }
}

fn declare_object(
    node: &StructuralNode,
    value_validation: Option<&ValueValidation>,
    resource: bool,
) -> Decl {
    let required = value_validation.map_or(&[][..], |value_validation| &value_validation.required);
    let replaces = |name: &str| resource && IMPLICIT.contains(&name) && !has_type_and_meta(node);
    let own = node.properties.iter().filter(|(name, _)| !replaces(name));
    let mut fields: Vec<(&str, Arc<Decl>, bool)> = Vec::new();
    for (name, property) in own {
        let Some(decl) = declare(property, property.embedded_resource) else { continue };
        let always = property.default.is_none() && required.contains(name);
        fields.push((name, decl, always));
    }
    if resource && !has_type_and_meta(node) {
        let text = Arc::new(Decl::string(None));
        let names = [("name", text.clone(), false), ("generateName", text.clone(), false)];
        let always = |name: &str| required.iter().any(|required| required == name);
        fields.push(("apiVersion", text.clone(), always("apiVersion")));
        fields.push(("kind", text, always("kind")));
        fields.push(("metadata", Arc::new(Decl::object(names)), always("metadata")));
    }
    Decl::object(fields)
}

const IMPLICIT: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Whether a schema specifies all that is implied for a resource.
fn has_type_and_meta(node: &StructuralNode) -> bool {
    let is = |node: &StructuralNode, name: &str, ty: JsonType| {
        node.property(name).is_some_and(|p| p.ty == ty)
    };
    is(node, "kind", JsonType::String)
        && is(node, "apiVersion", JsonType::String)
        && is(node, "metadata", JsonType::Object)
        && node.property("metadata").is_some_and(|metadata| {
            is(metadata, "name", JsonType::String) && is(metadata, "generateName", JsonType::String)
        })
}

fn list_kind(node: &StructuralNode) -> ListType {
    match node.list_type.as_deref() {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(node.list_map_keys.to_vec()),
        _ => ListType::Atomic,
    }
}

fn non_negative(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
