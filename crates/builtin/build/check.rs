//! What compiles and is wrong nevertheless: keys that no item has, kinds without a definition, …

use std::collections::HashSet;

use schema::{Field, ListType, Node, NodeType, ResourceFacts, Schema, Type};

use crate::{Definitions, kinds::KindFacts, resources};

/// Everything that is wrong, each with the place where it is.
pub(super) fn faults(definitions: &Definitions) -> Vec<String> {
    let mut faults = Vec::new();
    for (_, ty) in definitions.schema.types() {
        for fault in type_faults(ty, &definitions.schema) {
            faults.push(format!("{}: {fault}", ty.name));
        }
    }
    for resource in &definitions.resources {
        for fault in resource_faults(resource, &definitions.schema) {
            faults.push(format!("{:?}: {fault}", resource.kind));
        }
    }
    for facts in &definitions.kinds {
        for fault in kind_faults(facts, definitions) {
            faults.push(format!("{:?}: {fault}", facts.kind));
        }
    }
    for facts in &definitions.group_versions {
        let has_resources = definitions
            .resources
            .iter()
            .any(|resource| resource.group_version() == facts.group_version);
        if has_resources == facts.internal {
            faults.push(format!(
                "{:?}: internal and with resources, or neither",
                facts.group_version
            ));
        }
    }
    faults
}

fn type_faults(ty: &Type, schema: &Schema) -> Vec<String> {
    let mut faults = Vec::new();
    let mut names = HashSet::new();
    for field in &ty.fields {
        if !names.insert(&field.name) {
            faults.push(format!("two fields are called {}", field.name));
        }
        for fault in field_faults(field, schema) {
            faults.push(format!("{}: {fault}", field.name));
        }
    }
    for union in &ty.unions {
        for name in union.fields.iter().chain(&union.discriminator) {
            if !names.contains(name) {
                faults.push(format!("the union has no field {name}"));
            }
        }
    }
    faults
}

fn field_faults(field: &Field, schema: &Schema) -> Vec<String> {
    let mut faults = Vec::new();
    let keys = match &field.node.kind {
        NodeType::List(_, ListType::Map(keys)) => keys.as_slice(),
        _ => &[],
    };
    for key in keys.iter().chain(&field.patch.merge_key) {
        if !item_has(&field.node, key, schema) {
            faults.push(format!("the items have no field {key}"));
        }
    }
    if let Some(default) = field.node.default.as_ref().and_then(|default| default.as_str()) {
        let allowed = &field.node.enum_values;
        if !allowed.is_empty() && !allowed.iter().any(|value| value == default) {
            faults.push(format!("the default {default} is none of the allowed values"));
        }
    }
    faults
}

fn item_has(list: &Node, key: &str, schema: &Schema) -> bool {
    let NodeType::List(item, _) = &list.kind else { return false };
    matches!(item.kind, NodeType::Object(id) if schema.get(id).field(key).is_some())
}

fn resource_faults(resource: &ResourceFacts, schema: &Schema) -> Vec<String> {
    let mut faults = Vec::new();
    for subresource in &resource.subresources {
        if resources::type_of(&subresource.kind, schema).is_none() {
            faults.push(format!("there is no definition of {:?}", subresource.kind));
        }
    }
    if let Some(storage) = &resource.storage {
        let stored = storage.version.with_kind(&resource.kind.kind);
        if resources::type_of(&stored, schema).is_none() {
            faults.push(format!("there is no definition of the storage version, {stored:?}"));
        }
    }
    let paths = resource.selectable.iter().flat_map(|field| &field.paths);
    for path in paths {
        if !leads_somewhere(path, schema.get(resource.type_id), schema) {
            faults.push(format!("there is no field {path} to select by"));
        }
    }
    faults
}

fn kind_faults(facts: &KindFacts, definitions: &Definitions) -> Vec<String> {
    let mut faults = Vec::new();
    let schema = &definitions.schema;
    let resource = definitions.resources.iter().find(|resource| resource.kind == facts.kind);
    for (subresource, _) in &facts.resets {
        let is_known = subresource.is_empty()
            || resource.is_some_and(|resource| resource.subresource(subresource).is_some());
        if !is_known {
            faults.push(format!("reset: there is no subresource {subresource}"));
        }
    }
    let reset = facts.resets.iter().flat_map(|(_, fields)| fields);
    let gated = facts.gated_fields.iter().map(|field| match &field.used_by {
        Some(used_by) => format!("{}.{used_by}", field.path),
        None => field.path.clone(),
    });
    for path in facts.generation.iter().chain(reset).cloned().chain(gated) {
        if !leads_somewhere(&path, schema.get(facts.type_id), schema) {
            faults.push(format!("there is no field {path}"));
        }
    }
    if facts.orphan_warning.is_some() && facts.dependents.as_deref() != Some("ORPHANED") {
        faults.push("orphan_warning is for kinds whose dependents are ORPHANED".to_owned());
    }
    faults
}

fn leads_somewhere(path: &str, ty: &Type, schema: &Schema) -> bool {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    match (ty.field(name), rest) {
        (Some(_), None) => true,
        (Some(Field { node: Node { kind: NodeType::Object(id), .. }, .. }), Some(rest)) => {
            leads_somewhere(rest, schema.get(*id), schema)
        }
        _ => false,
    }
}
