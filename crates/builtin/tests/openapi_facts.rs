//! Are the definition files complete? `openapi-facts.tsv` has what kube-apiserver's OpenAPI documents
//! say about each definition and field; the loaded schema has to say the same.

use std::collections::{BTreeMap, BTreeSet};

use builtin::Definitions;
use meta::json;
use schema::{Field, ListType, Node, NodeType, Presence, Type};

#[test]
fn the_schema_says_what_openapi_says() {
    let definitions = Definitions::load();
    let mut differences = Vec::new();
    for (name, expected) in reference() {
        let Some(id) = definitions.schema.by_name(&name) else {
            if !scalars(&definitions).contains(name.as_str()) {
                differences.push(format!("{name} is missing"));
            }
            continue;
        };
        let actual = facts(definitions.schema.get(id), &definitions);
        compare(&name, &expected, &actual, &mut differences);
    }
    assert!(
        differences.is_empty(),
        "{} differences:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

/// Facts by field; those about the definition itself are under the empty name.
type Facts = BTreeMap<String, Vec<String>>;

fn reference() -> BTreeMap<String, Facts> {
    let mut definitions: BTreeMap<String, Facts> = BTreeMap::new();
    let mut current = String::new();
    for line in include_str!("openapi-facts.tsv").lines() {
        let (name, rest) = line.split_once('\t').expect("a name, or nothing, and a tab");
        if name.is_empty() {
            let mut facts = rest.split('\t').map(str::to_owned);
            let field = facts.next().expect("the name of a field");
            definitions
                .get_mut(&current)
                .expect("fields follow their type")
                .insert(field, facts.collect());
        } else {
            name.clone_into(&mut current);
            let facts = rest.split('\t').map(str::to_owned).collect();
            definitions.entry(current.clone()).or_default().insert(String::new(), facts);
        }
    }
    definitions
}

fn compare(name: &str, expected: &Facts, actual: &Facts, differences: &mut Vec<String>) {
    let fields: BTreeSet<&String> = expected.keys().chain(actual.keys()).collect();
    for field in fields {
        let (expected, actual) = (expected.get(field), actual.get(field));
        let known = EXCEPTIONS.iter().any(|(exception, _)| *exception == format!("{name}.{field}"));
        if expected != actual && !known {
            differences.push(format!(
                "{name}.{field}\n  reference: {expected:?}\n  ours:      {actual:?}"
            ));
        }
    }
}

/// Where we differ on purpose, with the reason.
const EXCEPTIONS: [(&str, &str); 1] = [(
    "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIServiceSpec.caBundle",
    "says `list-type: atomic`, which means nothing for bytes",
)];

fn facts(ty: &Type, definitions: &Definitions) -> Facts {
    let mut facts: Facts = ty
        .fields
        .iter()
        .map(|field| (field.name.to_string(), field_facts(field, definitions)))
        .collect();
    facts.insert(String::new(), type_facts(ty));
    facts
}

fn type_facts(ty: &Type) -> Vec<String> {
    let mut facts = vec!["object".to_owned()];
    if ty.atomic {
        facts.push("map-type=atomic".to_owned());
    }
    if !ty.kinds.is_empty() {
        let mut kinds: Vec<_> = ty
            .kinds
            .iter()
            .map(|kind| format!("{}/{}/{}", kind.group, kind.version, kind.kind))
            .collect();
        kinds.sort();
        facts.push(format!("kinds={}", kinds.join(",")));
    }
    for union in &ty.unions {
        let discriminator = union.discriminator.clone().unwrap_or_default();
        facts.push(format!("union={discriminator}:{}", union.fields.join(",")));
    }
    facts
}

fn field_facts(field: &Field, definitions: &Definitions) -> Vec<String> {
    let node = &field.node;
    let mut facts = vec![type_name(node, definitions)];
    if field.required {
        facts.push("required".to_owned());
    }
    if let NodeType::List(item, list) = &node.kind {
        match list {
            ListType::Undeclared => {}
            ListType::Atomic => facts.push("list-type=atomic".to_owned()),
            ListType::Set => facts.push("list-type=set".to_owned()),
            ListType::Map(keys) => {
                facts.push("list-type=map".to_owned());
                facts.push(format!("list-map-keys={}", keys.join(",")));
            }
        }
        assert!(!item.wrapped, "a list of lists");
    }
    if node.granular {
        facts.push("map-type=granular".to_owned());
    } else if node.atomic && !is_atomic_type(node, definitions) {
        facts.push("map-type=atomic".to_owned());
    }
    let patch = &field.patch;
    let strategies =
        [(patch.merge, "merge"), (patch.replace, "replace"), (patch.retain_keys, "retainKeys")];
    let strategies: Vec<_> =
        strategies.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
    if !strategies.is_empty() {
        facts.push(format!("patch-strategy={}", strategies.join(",")));
    }
    if let Some(key) = &patch.merge_key {
        facts.push(format!("patch-merge-key={key}"));
    }
    if let Some(default) = default(field) {
        facts.push(format!("default={default}"));
    }
    let values = match &node.kind {
        NodeType::List(item, _) | NodeType::Map(item) => &item.enum_values,
        _ => &node.enum_values,
    };
    if !values.is_empty() {
        facts.push(format!("enum={}", values.join(",")));
    }
    facts
}

/// OpenAPI v3 also has the zero value as default of a field that Go always prints.
fn default(field: &Field) -> Option<String> {
    if let Some(default) = &field.node.default {
        return Some(json::to_string(default));
    }
    let zero = match &field.node.kind {
        _ if field.pointer => return None,
        NodeType::Object(_) => "{}",
        _ if field.presence != Presence::Always => return None,
        NodeType::String => r#""""#,
        NodeType::Int32 | NodeType::Int64 | NodeType::Double => "0",
        NodeType::Bool => "false",
        _ => return None,
    };
    Some(zero.to_owned())
}

fn type_name(node: &Node, definitions: &Definitions) -> String {
    if let Some(definition) = &node.definition {
        return definition.to_string();
    }
    match &node.kind {
        NodeType::Any => "any".to_owned(),
        NodeType::AnyObject => "object".to_owned(),
        NodeType::Bool => "boolean".to_owned(),
        NodeType::Int32 => "integer:int32".to_owned(),
        NodeType::Int64 => "integer:int64".to_owned(),
        NodeType::Double => "number:double".to_owned(),
        NodeType::Bytes => "string:byte".to_owned(),
        NodeType::String | NodeType::Duration => "string".to_owned(),
        NodeType::Object(id) => definitions.schema.get(*id).name.to_string(),
        NodeType::List(item, _) => format!("[]{}", type_name(item, definitions)),
        NodeType::Map(item) => format!("{{}}{}", type_name(item, definitions)),
        other => panic!("{other:?} has no OpenAPI definition"),
    }
}

fn is_atomic_type(node: &Node, definitions: &Definitions) -> bool {
    matches!(node.kind, NodeType::Object(id) if definitions.schema.get(id).atomic)
}

/// Definitions of types that are one value: each has to be used.
fn scalars(definitions: &Definitions) -> BTreeSet<&str> {
    fn visit<'a>(node: &'a Node, found: &mut BTreeSet<&'a str>) {
        found.extend(node.definition.as_deref());
        if let NodeType::List(item, _) | NodeType::Map(item) = &node.kind {
            visit(item, found);
        }
    }
    let mut found = BTreeSet::new();
    for (_, ty) in definitions.schema.types() {
        ty.fields.iter().for_each(|field| visit(&field.node, &mut found));
    }
    found
}
