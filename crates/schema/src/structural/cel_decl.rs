//! What expressions may know about objects: a schema as CEL declares it.

use std::sync::Arc;

use cel::{Decl, ListType};
use meta::Value;

use super::node::{Additional, Checks, Node, Type};

/// The declaration of a node, unless it says too little to be seen by expressions. `resource`: the
/// root of an object, whose name and type are always there.
pub(super) fn declare(node: &Node, resource: bool) -> Option<Arc<Decl>> {
    let checks = node.checks.as_deref();
    let max_length = checks.and_then(|checks| checks.max_length).map(non_negative);
    if node.int_or_string {
        return Some(Arc::new(Decl::int_or_string(max_length).nullable(node.nullable)));
    }
    let decl = match node.ty {
        Type::Array => {
            let items = node.items.as_deref()?;
            let items = declare(items, items.embedded_resource)?;
            let max = checks.and_then(|checks| checks.max_items).map(non_negative);
            Decl::list(items, list_kind(node), max)
        }
        Type::Object => match &node.additional {
            Additional::Schema(values) => {
                let values = declare(values, values.embedded_resource)?;
                let max = checks.and_then(|checks| checks.max_properties).map(non_negative);
                Decl::map(values, max)
            }
            _ => declare_object(node, checks, resource),
        },
        Type::String => declare_string(checks, max_length),
        Type::Boolean => Decl::bool(),
        Type::Number => Decl::double(),
        Type::Integer => Decl::int(),
        Type::None | Type::Other(_) => return None,
    };
    Some(Arc::new(decl.nullable(node.nullable)))
}

fn declare_string(checks: Option<&Checks>, max_length: Option<u64>) -> Decl {
    match checks.map_or("", |checks| &checks.format) {
        "byte" => Decl::bytes(max_length),
        "duration" => Decl::duration(),
        "date" => Decl::date(),
        "date-time" => Decl::date_time(),
        _ => match checks.filter(|checks| !checks.enumeration.is_empty()) {
            Some(checks) if max_length.is_none() => {
                Decl::string_enum(checks.enumeration.iter().filter_map(Value::as_str))
            }
            _ => Decl::string(max_length),
        },
    }
}

fn declare_object(node: &Node, checks: Option<&Checks>, resource: bool) -> Decl {
    let required = checks.map_or(&[][..], |checks| &checks.required);
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

/// Whether a schema itself says all that is implied about a resource.
fn has_type_and_meta(node: &Node) -> bool {
    let is = |node: &Node, name: &str, ty: Type| node.property(name).is_some_and(|p| p.ty == ty);
    is(node, "kind", Type::String)
        && is(node, "apiVersion", Type::String)
        && is(node, "metadata", Type::Object)
        && node.property("metadata").is_some_and(|metadata| {
            is(metadata, "name", Type::String) && is(metadata, "generateName", Type::String)
        })
}

fn list_kind(node: &Node) -> ListType {
    match node.list_type.as_deref() {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(node.list_map_keys.to_vec()),
        _ => ListType::Atomic,
    }
}

fn non_negative(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
