//! Reads and validates policy files, with kube-apiserver's messages.

use std::{io::Read as _, path::Path};

use codec::{
    config_file::{self, FieldType},
    yaml,
};
use meta::{
    AuditLevel, FieldErrors, FieldPath, Str, Value,
    field::{path, quote},
    names::name_is_dns_subdomain,
};

use super::{
    GroupResources, Policy, RequestPolicy, ResourcePattern, Rule, StageSet, Target, UrlPattern,
};
use crate::event::Stage;

/// A larger file is refused. A policy has tens of rules; this allows thousands.
const FILE_BYTES_MAX: u64 = 1 << 20;

const GROUP_VERSION: &str = "audit.k8s.io/v1";
const KIND: &str = "Policy";

pub(super) fn load(file: &Path) -> Result<Policy, String> {
    let show = quote(&file.display().to_string());
    let failed = |error| format!("failed to read file path {show}: {error}");
    let opened = std::fs::File::open(file).map_err(failed)?;
    let mut bytes = Vec::new();
    opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("file {show} is larger than {FILE_BYTES_MAX} bytes"));
    }
    parse(&bytes).map_err(|why| format!("{why}: from file {}", file.display()))
}

pub(super) fn parse(bytes: &[u8]) -> Result<Policy, String> {
    let document = decode(bytes).map_err(|why| format!("failed decoding: {why}"))?;
    let mut errors = FieldErrors::default();
    let policy = compile(&document, &mut errors);
    if !errors.is_empty() {
        let at = |field: &str| yaml::line_of(bytes, field).map_or(0, |line| line);
        let mut texts = errors
            .iter()
            .map(|error| format!("{}: {} (line {})", error.field, error.message, at(&error.field)));
        return Err(match errors.count() {
            1 => texts.next().unwrap_or_default(),
            _ => format!("[{}]", texts.collect::<Vec<_>>().join(", ")),
        });
    }
    if policy.rules.is_empty() {
        return Err("loaded illegal policy with 0 rules".to_owned());
    }
    Ok(policy)
}

/// kube-apiserver warns about unknown fields and goes on without them. A rule whose misspelt field
/// is skipped matches more than it says, so here it is an error.
fn decode(bytes: &[u8]) -> Result<Value, String> {
    config_file::decode(bytes, &[(GROUP_VERSION, KIND)], &FILE)
}

const FILE: FieldType = FieldType::Fields(&[
    ("apiVersion", FieldType::Text),
    ("kind", FieldType::Text),
    ("metadata", FieldType::Object),
    ("omitManagedFields", FieldType::Bool),
    ("omitStages", FieldType::TEXTS),
    ("rules", FieldType::List(&RULE)),
]);

const RULE: FieldType = FieldType::Fields(&[
    ("level", FieldType::Text),
    ("namespaces", FieldType::TEXTS),
    ("nonResourceURLs", FieldType::TEXTS),
    ("omitManagedFields", FieldType::Bool),
    ("omitStages", FieldType::TEXTS),
    ("resources", FieldType::List(&GROUP_RESOURCES)),
    ("userGroups", FieldType::TEXTS),
    ("users", FieldType::TEXTS),
    ("verbs", FieldType::TEXTS),
]);

const GROUP_RESOURCES: FieldType = FieldType::Fields(&[
    ("group", FieldType::Text),
    ("resourceNames", FieldType::TEXTS),
    ("resources", FieldType::TEXTS),
]);

fn compile(document: &Value, errors: &mut FieldErrors) -> Policy {
    let omit_stages = stages(document, &FieldPath::root(), errors);
    let omit_managed_fields = document.bool_at(&["omitManagedFields"]);
    let root = path("rules");
    let rules = document.items_at(&["rules"]).iter().enumerate().map(|(n, rule)| {
        let at = root.index(n);
        let level = level(rule, &at.child("level"), errors);
        let target = target(rule, &at, errors);
        let omit_stages = omit_stages.union(stages(rule, &at, errors));
        let own = rule.at(&["omitManagedFields"]).and_then(Value::as_bool);
        Rule {
            answer: RequestPolicy {
                level,
                omit_stages,
                omit_managed_fields: own.unwrap_or(omit_managed_fields),
            },
            users: texts(rule, "users"),
            user_groups: texts(rule, "userGroups"),
            verbs: texts(rule, "verbs"),
            target,
        }
    });
    Policy { rules: rules.collect() }
}

fn texts(value: &Value, field: &str) -> Vec<Str> {
    value.items_at(&[field]).iter().filter_map(Value::as_str).map(Str::new).collect()
}

fn level(rule: &Value, at: &FieldPath, errors: &mut FieldErrors) -> AuditLevel {
    let text = rule.str_at(&["level"]);
    if text.is_empty() {
        errors.required(at, "");
        return AuditLevel::None;
    }
    let known = AuditLevel::ALL.into_iter().find(|level| level.as_str() == text);
    known.unwrap_or_else(|| {
        errors.not_supported(at, text, &AuditLevel::ALL.map(AuditLevel::as_str));
        AuditLevel::None
    })
}

fn stages(value: &Value, at: &FieldPath, errors: &mut FieldErrors) -> StageSet {
    let mut set = StageSet::default();
    for (n, text) in texts(value, "omitStages").iter().enumerate() {
        match Stage::ALL.into_iter().find(|stage| stage.as_str() == text) {
            Some(stage) => set = set.with(stage),
            None => {
                let allowed = Stage::ALL.map(Stage::as_str).join(",");
                let why = format!("allowed stages are {allowed}");
                errors.invalid(at.child("omitStages").index(n), text.as_str(), &why);
            }
        }
    }
    set
}

fn target(rule: &Value, at: &FieldPath, errors: &mut FieldErrors) -> Target {
    let urls = texts(rule, "nonResourceURLs");
    let urls_at = at.child("nonResourceURLs");
    for (n, url) in urls.iter().enumerate().filter(|(_, url)| *url != "*") {
        if !url.starts_with('/') {
            let why = "non-resource URL rules must begin with a '/' character";
            errors.invalid(urls_at.index(n), url.as_str(), why);
        }
        if url.find('*').is_some_and(|star| star + 1 < url.len()) {
            let why = "non-resource URL wildcards '*' must be the final character of the rule";
            errors.invalid(urls_at.index(n), url.as_str(), why);
        }
    }
    // Compat: the path has no index.
    let resources_at = at.child("resources");
    let resources: Vec<_> = rule
        .items_at(&["resources"])
        .iter()
        .map(|group| group_resources(group, &resources_at, errors))
        .collect();
    let namespaces = texts(rule, "namespaces");
    if urls.is_empty() {
        if resources.is_empty() && namespaces.is_empty() {
            return Target::All;
        }
        return Target::Resources { namespaces, resources };
    }
    if !resources.is_empty() || !namespaces.is_empty() {
        let why = "rules cannot apply to both regular resources and non-resource URLs";
        errors.invalid(urls_at, rule.at(&["nonResourceURLs"]).cloned().unwrap_or_default(), why);
    }
    Target::NonResourceUrls(urls.iter().map(|url| UrlPattern::parse(url)).collect())
}

fn group_resources(value: &Value, at: &FieldPath, errors: &mut FieldErrors) -> GroupResources {
    let group = value.str_at(&["group"]);
    if !group.is_empty() && group != "*" {
        let wrong = name_is_dns_subdomain(group, false);
        if !wrong.is_empty() {
            errors.invalid(at.child("group"), group, &wrong.join(","));
        }
    }
    let (resources, names) = (texts(value, "resources"), texts(value, "resourceNames"));
    if resources.is_empty() && !names.is_empty() {
        let why = "using resourceNames requires at least one resource";
        let given = value.at(&["resourceNames"]).cloned().unwrap_or_default();
        errors.invalid(at.child("resourceNames"), given, why);
    }
    GroupResources {
        group: (group != "*").then(|| group.into()),
        patterns: resources.iter().map(|text| ResourcePattern::parse(text)).collect(),
        names,
    }
}
