//! Validation of flow schemas.

use std::collections::BTreeSet;

use meta::{
    FieldErrors, Value,
    field::FieldReason,
    names::{is_dns1123_label, is_dns1123_subdomain},
    value,
};

use crate::validation::cursor::Field;

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let precedence = spec.get("matchingPrecedence");
    match precedence.int().unwrap_or(1000) {
        ..=0 => precedence.invalid(errors, "must be a positive value"),
        10_001.. => precedence.invalid(errors, "must not be greater than 10000"),
        1 if root.str_at(&["metadata", "name"]) != "exempt" => {
            let why = "only the schema named 'exempt' may have matchingPrecedence 1";
            precedence.invalid(errors, why);
        }
        _ => {}
    }
    let method = spec.get("distinguisherMethod");
    if method.is_set() && !matches!(method.str_at(&["type"]), "ByNamespace" | "ByUser") {
        let shown = meta::json::to_string(&method.str_at(&["type"]).into());
        let message = format!(
            "Unsupported value: {{\"Type\":{shown}}}: supported values: \"ByNamespace\", \"ByUser\""
        );
        errors.push(FieldReason::NotSupported, method.get("type").path(), message);
    }
    let level = spec.get("priorityLevelConfiguration");
    let level = level.get("name");
    if level.is_empty() {
        level.required(errors, "must reference a priority level");
    } else {
        level.rule(errors, is_dns1123_subdomain);
    }
    for rule in spec.get("rules").items() {
        policy_rule(&rule, errors);
    }
    let name = root.str_at(&["metadata", "name"]);
    if mandatory_schema(name).is_some_and(|fixed| spec.value() != Some(&fixed)) {
        spec.invalid(errors, &format!("spec of '{name}' must equal the fixed value"));
    }
}

/// What the server can't do without stays as it is.
fn mandatory_schema(name: &str) -> Option<Value> {
    let rules = |groups: &[&str]| {
        let subjects: Vec<Value> = groups
            .iter()
            .map(|name| value!({"kind": "Group", "group": {"name": (*name)}}))
            .collect();
        value!([{
            "subjects": (subjects),
            "resourceRules": [{
                "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true,
                "namespaces": ["*"]
            }],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
        }])
    };
    match name {
        "exempt" => Some(value!({
            "priorityLevelConfiguration": {"name": "exempt"},
            "matchingPrecedence": 1i64,
            "rules": (rules(&["system:masters"]))
        })),
        "catch-all" => Some(value!({
            "priorityLevelConfiguration": {"name": "catch-all"},
            "matchingPrecedence": 10_000i64,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": (rules(&["system:unauthenticated", "system:authenticated"]))
        })),
        _ => None,
    }
}

pub(crate) fn validate_update(object: &Value, _old: &Value, errors: &mut FieldErrors) {
    validate(object, errors);
    status_conditions(object, errors);
}

pub(crate) fn status_conditions(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let status = root.get("status");
    let mut seen = BTreeSet::new();
    for condition in status.get("conditions").items() {
        let name = condition.get("type");
        if !seen.insert(condition.str_at(&["type"])) {
            errors.duplicate(name.path(), name.str());
        }
        name.require(errors);
    }
}

fn policy_rule(rule: &Field<'_>, errors: &mut FieldErrors) {
    let subjects = rule.get("subjects");
    if subjects.is_empty() {
        subjects.required(errors, "subjects must contain at least one value");
    }
    for subject in subjects.items() {
        flow_subject(&subject, errors);
    }
    let (resources, others) = (rule.get("resourceRules"), rule.get("nonResourceRules"));
    if resources.is_empty() && others.is_empty() {
        let why = "at least one of resourceRules and nonResourceRules has to be non-empty";
        rule.required(errors, why);
    }
    for rule in resources.items() {
        resource_rule(&rule, errors);
    }
    for rule in others.items() {
        verbs(&rule.get("verbs"), errors);
        let urls = rule.get("nonResourceURLs");
        if urls.is_empty() {
            urls.required(errors, "nonResourceURLs must contain at least one value");
        } else if !alone(&urls, "non-resource URLs", errors) {
            for url in urls.items() {
                if let Some(why) = url_error(url.str()) {
                    url.invalid(errors, why);
                }
            }
        }
    }
}

/// A kind of subject, the field that goes with it.
const SUBJECTS: [(&str, &str); 3] =
    [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];

fn flow_subject(subject: &Field<'_>, errors: &mut FieldErrors) {
    let kind = subject.get("kind");
    let Some((_, own)) = SUBJECTS.iter().find(|(known, _)| kind.is(known)) else {
        return kind.not_supported(errors, &["Group", "ServiceAccount", "User"]);
    };
    let who = subject.get(own);
    let name = who.get("name");
    if !who.is_set() {
        who.required(errors, &format!("{own} is required when subject kind is '{}'", kind.str()));
    } else if name.require(errors) && kind.is("ServiceAccount") && !name.is("*") {
        name.rule(errors, is_dns1123_subdomain);
    }
    if who.is_set() && kind.is("ServiceAccount") {
        let namespace = who.get("namespace");
        if namespace.is_empty() {
            namespace.required(errors, "must specify namespace for service account");
        } else {
            namespace.rule(errors, is_dns1123_label);
        }
    }
    for (other, field) in SUBJECTS.iter().filter(|(_, field)| field != own) {
        if subject.get(field).is_set() {
            let why = format!("{field} is forbidden when subject kind is not '{other}'");
            subject.get(field).forbidden(errors, &why);
        }
    }
}

/// True if the list is `*`; an error if it is that and more.
fn alone(list: &Field<'_>, what: &str, errors: &mut FieldErrors) -> bool {
    let has_any = list.items().any(|item| item.is("*"));
    if has_any && list.len() > 1 {
        list.invalid(errors, &format!("if '*' is present, must not specify other {what}"));
    }
    has_any
}

fn verbs(verbs: &Field<'_>, errors: &mut FieldErrors) {
    const SUPPORTED: &[&str] = &[
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "proxy",
        "update",
        "watch",
    ];
    if verbs.is_empty() {
        verbs.required(errors, "verbs must contain at least one value");
    } else if !alone(verbs, "verbs", errors)
        && !verbs.items().all(|verb| SUPPORTED.contains(&verb.str()))
    {
        let shown = verbs.value().map(meta::json::to_string).unwrap_or_default();
        let supported: Vec<String> = SUPPORTED.iter().map(|verb| format!("\"{verb}\"")).collect();
        let message =
            format!("Unsupported value: {shown}: supported values: {}", supported.join(", "));
        errors.push(FieldReason::NotSupported, verbs.path(), message);
    }
}

fn resource_rule(rule: &Field<'_>, errors: &mut FieldErrors) {
    verbs(&rule.get("verbs"), errors);
    for (name, what, why) in [
        ("apiGroups", "api groups", "resource rules must supply at least one api group"),
        ("resources", "resources", "resource rules must supply at least one resource"),
    ] {
        let list = rule.get(name);
        if list.is_empty() {
            list.required(errors, why);
        } else {
            alone(&list, what, errors);
        }
    }
    let namespaces = rule.get("namespaces");
    if namespaces.is_empty() && !rule.get("clusterScope").bool() {
        let why = "resource rules that are not cluster scoped must supply at least one namespace";
        namespaces.required(errors, why);
    } else if !alone(&namespaces, "namespaces", errors) {
        for namespace in namespaces.items() {
            for why in is_dns1123_label(namespace.str()) {
                let why =
                    format!("each member of this list must be '*' or a DNS-1123 label; {why}");
                namespace.invalid(errors, &why);
            }
        }
    }
}

fn url_error(url: &str) -> Option<&'static str> {
    let stars = url.matches('*').count();
    match url {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !url.starts_with('/') => Some("must start with slash"),
        _ if url.contains(' ') => Some("must not contain white-space"),
        _ if url.contains("//") => Some("must not contain double slash"),
        _ if stars > 1 || stars == 1 && !url.ends_with("/*") => {
            Some("wildcard can only do suffix matching")
        }
        _ => None,
    }
}
