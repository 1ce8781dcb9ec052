//! Flow schemas and priority levels.

use std::collections::BTreeSet;

use meta::{
    FieldErrors, Value,
    field::FieldReason,
    names::{is_dns1123_label, is_dns1123_subdomain},
    value,
};

use super::cursor::Field;

pub(crate) fn flow_schema(object: &Value, errors: &mut FieldErrors) {
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

fn mandatory_level(name: &str, spec: &Field<'_>, errors: &mut FieldErrors) {
    match name {
        "exempt" => {
            let spec_type = spec.str_at(&["type"]);
            if spec_type != "Exempt" || spec.get("limited").is_set() {
                let why = "spec of 'exempt' except the 'spec.exempt' field must equal the fixed \
                           value";
                spec.invalid(errors, why);
            }
        }
        "catch-all" => {
            let fixed = value!({"type": "Limited", "limited": {
                "nominalConcurrencyShares": 5i64, "lendablePercent": 0i64,
                "limitResponse": {"type": "Reject"}
            }});
            if spec.value() != Some(&fixed) {
                spec.invalid(errors, "spec of 'catch-all' must equal the fixed value");
            }
        }
        _ => {}
    }
}

pub(crate) fn flow_schema_update(object: &Value, _old: &Value, errors: &mut FieldErrors) {
    flow_schema(object, errors);
    status_conditions(object, errors);
}

fn status_conditions(object: &Value, errors: &mut FieldErrors) {
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

pub(crate) fn priority_level(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let (kind, limited, exempt) = (spec.get("type"), spec.get("limited"), spec.get("exempt"));
    if (root.str_at(&["metadata", "name"]) == "exempt") != kind.is("Exempt") {
        let why = "must be 'Exempt' if and only if `name` is 'exempt'";
        kind.invalid_value(errors, kind.str(), why);
    }
    match kind.str() {
        "Exempt" => {
            if limited.is_set() {
                limited.forbidden(errors, "must be nil if the type is not Limited");
            }
            shares(&exempt, errors);
            percent(&exempt.get("lendablePercent"), errors);
        }
        "Limited" => {
            if exempt.is_set() {
                exempt.forbidden(errors, "must be nil if the type is Limited");
            }
            if limited.is_set() {
                limited_level(&limited, errors);
            } else {
                limited.required(errors, "must not be empty when type is Limited");
            }
        }
        "" => kind.required(errors, ""),
        _ => kind.not_supported(errors, &["Exempt", "Limited"]),
    }
    mandatory_level(root.str_at(&["metadata", "name"]), &spec, errors);
}

pub(crate) fn priority_level_update(object: &Value, _old: &Value, errors: &mut FieldErrors) {
    priority_level(object, errors);
    status_conditions(object, errors);
}

fn shares(level: &Field<'_>, errors: &mut FieldErrors) {
    let shares = level.get("nominalConcurrencyShares");
    if shares.int_or_zero() < 0 {
        shares.invalid(errors, "must be a non-negative integer");
    }
}

fn percent(percent: &Field<'_>, errors: &mut FieldErrors) {
    if !(0..=100).contains(&percent.int_or_zero()) {
        percent.invalid(errors, "must be between 0 and 100, inclusive");
    }
}

fn limited_level(limited: &Field<'_>, errors: &mut FieldErrors) {
    shares(limited, errors);
    let response = limited.get("limitResponse");
    let (kind, queuing) = (response.get("type"), response.get("queuing"));
    match kind.str() {
        "Reject" => {
            if queuing.is_set() {
                let why = "must be nil if limited.limitResponse.type is not Limited";
                queuing.forbidden(errors, why);
            }
        }
        "Queue" if !queuing.is_set() => {
            let why = "must not be empty if limited.limitResponse.type is Limited";
            queuing.required(errors, why);
        }
        "Queue" => self::queuing(&queuing, errors),
        "" => kind.required(errors, ""),
        _ => kind.not_supported(errors, &["Queue", "Reject"]),
    }
    percent(&limited.get("lendablePercent"), errors);
    let borrowing = limited.get("borrowingLimitPercent");
    if borrowing.int_or_zero() < 0 {
        borrowing.invalid(errors, "if specified, must be a non-negative integer");
    }
}

fn queuing(queuing: &Field<'_>, errors: &mut FieldErrors) {
    let (limit, queues, hand) =
        (queuing.get("queueLengthLimit"), queuing.get("queues"), queuing.get("handSize"));
    let positive = "must be positive";
    if limit.int_or_zero() <= 0 {
        limit.invalid_value(errors, limit.int_or_zero(), positive);
    }
    match queues.int_or_zero() {
        ..=0 => queues.invalid_value(errors, queues.int_or_zero(), positive),
        10_000_001.. => queues.invalid(errors, "must not be greater than 10000000"),
        _ => {}
    }
    let (size, deck) = (hand.int_or_zero(), queues.int_or_zero());
    if size <= 0 {
        hand.invalid_value(errors, size, positive);
    } else if size > deck {
        hand.invalid(errors, &format!("should not be greater than queues ({deck})"));
    } else if entropy_bits(deck, size) > 60 {
        let why = format!(
            "required entropy bits of deckSize {deck} and handSize {size} should not be greater \
             than 60"
        );
        hand.invalid(errors, &why);
    }
}

/// How many bits it takes to deal a hand of this size from the deck.
fn entropy_bits(deck: i64, hand: i64) -> i64 {
    ((deck as f64).log2() * hand as f64).ceil() as i64
}
