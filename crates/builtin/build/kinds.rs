//! How kinds differ in what is a fact, and which of their fields wait for feature gates: read from the
//! `resource` options and written as a Rust table that `src/kind_facts.rs` includes.

use std::fmt::Write as _;

use meta::{GroupVersionKind, Str};
use schema::{Node, NodeType, TypeId};

use crate::{Definitions, options::Options};

/// What the `resource` option says beyond what discovery and storage need.
pub(super) struct KindFacts {
    pub(super) kind: GroupVersionKind,
    pub(super) type_id: TypeId,
    pub(super) feature_gate: Option<String>,
    pub(super) gated_fields: Vec<GatedField>,
    deprecation: Option<String>,
    name_rule: Option<String>,
    conditional_update: bool,
    create_on_update: bool,
    pub(super) generation: Vec<String>,
    status_on_create: bool,
    returns_deleted_object: bool,
    two_step_delete: bool,
    pub(super) dependents: Option<String>,
    pub(super) orphan_warning: Option<String>,
    /// A subresource ("" is the object itself), and the fields that a write to it keeps.
    pub(super) resets: Vec<(String, Vec<String>)>,
    any_finalizer: bool,
    recheck_on_update: Option<String>,
    recheck_on_status_update: Option<String>,
    /// The minor release, or 0.
    introduced: u32,
}

pub(super) struct GatedField {
    gate: String,
    pub(super) path: String,
    pub(super) used_by: Option<String>,
}

pub(super) fn read(declared: &Options, kind: &GroupVersionKind, type_id: TypeId) -> KindFacts {
    let resets = declared.messages("reset");
    let gated_fields = declared.messages("gated_field");
    KindFacts {
        kind: kind.clone(),
        type_id,
        feature_gate: declared.name("feature_gate"),
        gated_fields: gated_fields
            .iter()
            .map(|field| GatedField {
                gate: field.name("gate").expect("required"),
                path: field.string("path").expect("required"),
                used_by: field.string("used_by"),
            })
            .collect(),
        deprecation: declared.message("deprecation").map(|declared| deprecation(&declared, kind)),
        name_rule: declared.name("name_rule"),
        conditional_update: declared.flag("conditional_update"),
        create_on_update: declared.flag("create_on_update"),
        generation: declared.strings("generation"),
        status_on_create: declared.flag("status_on_create"),
        returns_deleted_object: declared.has("delete_answer"),
        two_step_delete: declared.flag("two_step_delete"),
        dependents: declared.name("dependents"),
        orphan_warning: declared.string("orphan_warning"),
        resets: resets
            .iter()
            .map(|reset| (reset.string("subresource").unwrap_or_default(), reset.strings("field")))
            .collect(),
        any_finalizer: declared.flag("any_finalizer"),
        recheck_on_update: declared.name("recheck_on_update"),
        recheck_on_status_update: declared.name("recheck_on_status_update"),
        introduced: declared.string("introduced").map_or(0, |release| minor(&release)),
    }
}

fn minor(release: &str) -> u32 {
    let minor = release.strip_prefix("1.").and_then(|minor| minor.parse().ok());
    minor.unwrap_or_else(|| panic!("{release} is no release such as 1.36"))
}

/// The text of the warning, word for word Kubernetes'.
fn deprecation(declared: &Options, kind: &GroupVersionKind) -> String {
    let since = declared.string("since").expect("required");
    let mut text = format!("{} {} is deprecated in v{since}+", kind.group_version(), kind.kind);
    if let Some(removed) = declared.string("removed") {
        let _ = write!(text, ", unavailable in v{removed}+");
    }
    if let Some(instead) = declared.string("use") {
        let _ = write!(text, "; use {instead}");
    }
    text
}

/// `FeatureGate`, and `KINDS` sorted by group, version and kind.
pub(super) fn source(definitions: &Definitions) -> String {
    let mut out = String::new();
    gates_source(&definitions.feature_gates, &mut out);
    let mut kinds: Vec<&KindFacts> = definitions.kinds.iter().collect();
    kinds.sort_by_key(|facts| {
        let GroupVersionKind { group, version, kind } = &facts.kind;
        (group.clone(), version.clone(), kind.clone())
    });
    out.push_str("pub(crate) static KINDS: &[KindFacts] = &[\n");
    for facts in kinds {
        kind_source(facts, definitions, &mut out);
    }
    out.push_str("];\n");
    out
}

fn gates_source(gates: &[String], out: &mut String) {
    let list = |each: &dyn Fn(&String) -> String| gates.iter().map(each).collect::<String>();
    let variants = list(&|gate| format!("    {gate},\n"));
    let all = list(&|gate| format!("FeatureGate::{gate}, "));
    let names = list(&|gate| format!("            Self::{gate} => {gate:?},\n"));
    let _ = write!(
        out,
        "/// The feature gates that built-in kinds look at.
#[allow(clippy::upper_case_acronyms)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureGate {{
{variants}}}

impl FeatureGate {{
    pub const ALL: &[FeatureGate] = &[{all}];

    pub fn name(self) -> &'static str {{
        match self {{
{names}        }}
    }}
}}
"
    );
}

fn kind_source(facts: &KindFacts, definitions: &Definitions, out: &mut String) {
    let GroupVersionKind { group, version, kind } = &facts.kind;
    let found = Fields::find(facts.type_id, definitions);
    let own = facts.gated_fields.iter().map(|field| {
        let used_by = field.used_by.as_ref().map(|name| format!("?{name}")).unwrap_or_default();
        (field.gate.clone(), format!("{}{used_by}", field.path))
    });
    let gated: String = found
        .gated
        .into_iter()
        .chain(own)
        .map(|(gate, path)| format!("(FeatureGate::{gate}, {path:?}), "))
        .collect();
    let gate = facts.feature_gate.as_ref().map(|gate| format!("FeatureGate::{gate}"));
    let resets: String = facts
        .resets
        .iter()
        .map(|(subresource, fields)| format!("({subresource:?}, &{fields:?}), "))
        .collect();
    let dependents = match facts.dependents.as_deref() {
        Some("ORPHANED") => {
            format!(
                "GarbageCollectionPolicy::OrphanDependents {{ warning: {:?} }}",
                facts.orphan_warning
            )
        }
        Some("NO_DEPENDENTS") => "GarbageCollectionPolicy::Unsupported".to_owned(),
        _ => "GarbageCollectionPolicy::DeleteDependents".to_owned(),
    };
    let _ = write!(
        out,
        "    KindFacts {{
        group: {group:?},
        version: {version:?},
        kind: {kind:?},
        feature_gate: {},
        gated_fields: &[{gated}],
        pod_spec: {:?},
        introduced: {},
        behaviour: Behaviour {{
            name_rule: {},
            unconditional_update: {},
            create_on_update: {},
            generation: &{:?},
            status_on_create: {},
            deprecation: {:?},
            returns_deleted_object: {},
            deleted_in_two_steps: {},
            dependents: {dependents},
            resets: &[{resets}],
            metadata: MetadataChecks {{
                qualified_finalizers: {},
                update: ObjectMetaValidation::{},
                status: ObjectMetaValidation::{},
            }},
        }},
    }},
",
        option(gate),
        found.pod_spec,
        facts.introduced,
        name_rule(facts.name_rule.as_deref()),
        !facts.conditional_update,
        facts.create_on_update,
        facts.generation,
        facts.status_on_create,
        facts.deprecation,
        facts.returns_deleted_object,
        facts.two_step_delete,
        !facts.any_finalizer,
        recheck(facts.recheck_on_update.as_deref()),
        recheck(facts.recheck_on_status_update.as_deref()),
    );
}

fn option(value: Option<String>) -> String {
    value.map_or_else(|| "None".to_owned(), |value| format!("Some({value})"))
}

fn name_rule(name: Option<&str>) -> &'static str {
    match name {
        None | Some("DNS_SUBDOMAIN") => "name_is_dns_subdomain",
        Some("GENERATED_DNS_SUBDOMAIN") => "generated_name_is_dns_subdomain",
        Some("STORAGE_VERSION") => "name_is_storage_version",
        Some("DNS_LABEL") => "name_is_dns_label",
        Some("PATH_SEGMENT") => "name_is_path_segment",
        Some("IP_ADDRESS") => "name_is_ip",
        Some("CONFIG_MAP_KEY") => "name_is_config_map_key",
        Some("ANY_NAME") => "any_name",
        Some(other) => panic!("unknown name rule {other}"),
    }
}

fn recheck(name: Option<&str>) -> &'static str {
    match name {
        Some("NOTHING") => "None",
        None | Some("CHANGE") => "Update",
        Some("WHOLE") => "Create",
        Some("CHANGE_THEN_WHOLE") => "UpdateThenCreate",
        Some("WHOLE_THEN_CHANGE") => "CreateThenUpdate",
        Some(other) => panic!("unknown recheck {other}"),
    }
}

/// The fields of a kind that the server treats by how it was started.
#[derive(Default)]
struct Fields {
    /// A gate and a path, where `[]` stands for every item.
    gated: Vec<(String, String)>,
    /// Where the kind has the spec of a pod.
    pod_spec: Option<String>,
}

impl Fields {
    fn find(type_id: TypeId, definitions: &Definitions) -> Self {
        let mut found = Self::default();
        found.walk(type_id, "", definitions, &mut Vec::new());
        found
    }

    /// `above` has the types on the way, as some contain themselves.
    fn walk(
        &mut self,
        type_id: TypeId,
        path: &str,
        definitions: &Definitions,
        above: &mut Vec<TypeId>,
    ) {
        if above.contains(&type_id) {
            return;
        }
        let ty = definitions.schema.get(type_id);
        if ty.name == POD_SPEC {
            self.pod_spec = Some(path.to_owned());
        }
        above.push(type_id);
        for field in &ty.fields {
            let path = if path.is_empty() {
                field.name.to_string()
            } else {
                format!("{path}.{}", field.name)
            };
            if let Some(gate) = gate_of(type_id, &field.name, definitions) {
                self.gated.push((gate.to_owned(), path));
            } else if let Some((inner, suffix)) = inner(&field.node) {
                self.walk(inner, &format!("{path}{suffix}"), definitions, above);
            }
        }
        above.pop();
    }
}

const POD_SPEC: &str = "io.k8s.api.core.v1.PodSpec";

fn gate_of<'a>(type_id: TypeId, field: &Str, definitions: &'a Definitions) -> Option<&'a str> {
    let gated = definitions.gated_fields.get(&type_id)?;
    gated.iter().find(|(name, _)| name == field).map(|(_, gate)| gate.as_str())
}

fn inner(node: &Node) -> Option<(TypeId, &'static str)> {
    match &node.kind {
        NodeType::Object(id) => Some((*id, "")),
        NodeType::List(item, _) | NodeType::Map(item) => inner(item).map(|(id, _)| (id, "[]")),
        _ => None,
    }
}
