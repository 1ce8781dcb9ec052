//! Limit ranges and resource quotas.

use std::{cmp::Ordering, collections::BTreeSet};

use meta::{
    FieldErrors, Value,
    names::is_qualified_name,
    quantity::{Format, Quantity},
};

use super::{
    cursor::{Field, IMMUTABLE},
    pod_spec::{
        STANDARD_RESOURCES, allows_overcommit, compare_quantities, container_resource_name,
        is_quota_huge_page, quantity, quantity_value, resource_name,
    },
};

pub(crate) fn limit_range(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let mut types = BTreeSet::new();
    for limit in spec.get("limits").items() {
        let kind = limit.get("type");
        let text = limit.str_at(&["type"]);
        let wrong = is_qualified_name(text);
        for why in &wrong {
            kind.invalid_value(errors, text, why);
        }
        let is_standard = matches!(text, "Pod" | "Container" | "PersistentVolumeClaim");
        if wrong.is_empty() && !text.contains('/') && !is_standard {
            let why = "must be a standard limit type or fully qualified";
            kind.invalid_value(errors, text, why);
        }
        if !types.insert(text) {
            kind.duplicate(errors);
        }
        limit_item(&limit, text, errors);
    }
}

fn limit_item(limit: &Field<'_>, kind: &str, errors: &mut FieldErrors) {
    let mut names = BTreeSet::new();
    for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let entries = limit.get(list);
        if list == "maxLimitRequestRatio" && kind == "PersistentVolumeClaim" {
            let has_storage =
                ["min", "max"].iter().any(|list| limit.value_at(&[list, "storage"]).is_some());
            if !has_storage {
                let why = "either minimum or maximum storage value is required, but neither was \
                           provided";
                limit.get("limits").required(errors, why);
            }
        }
        if kind == "Pod" && matches!(list, "default" | "defaultRequest") {
            if !entries.is_empty() {
                entries.forbidden(errors, "may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        for (name, entry) in entries.entries() {
            if matches!(kind, "Pod" | "Container") {
                container_resource_name(name, &entry, errors);
            } else {
                resource_name(name, &entry, errors);
            }
            names.insert(name.to_owned());
        }
    }
    for name in &names {
        relations(limit, name, errors);
    }
}

/// min ≤ default request ≤ default ≤ max, and the ratio within max/min.
fn relations(limit: &Field<'_>, name: &str, errors: &mut FieldErrors) {
    let of = |list: &str| limit.value_at(&[list, name]);
    let [min, max, default, request, ratio] =
        ["min", "max", "default", "defaultRequest", "maxLimitRequestRatio"].map(of);
    let text = |value: Option<&Value>| {
        value.and_then(quantity).map(|quantity| quantity.to_string()).unwrap_or_default()
    };
    let above = |value: Option<&Value>, other: Option<&Value>| {
        value.is_some() && other.is_some() && compare_quantities(value, other) == Ordering::Greater
    };
    let mut say = |list: &str, shown: Option<&Value>, why: String| {
        let entries = limit.get(list);
        entries.key(name).invalid_value(errors, text(shown), &why);
    };
    if above(min, max) {
        say("min", min, format!("min value {} is greater than max value {}", text(min), text(max)));
    }
    if above(min, request) {
        let (min, value) = (text(min), text(request));
        let why = format!("min value {min} is greater than default request value {value}");
        say("defaultRequest", request, why);
    }
    if above(request, max) {
        let (value, max) = (text(request), text(max));
        let why = format!("default request value {value} is greater than max value {max}");
        say("defaultRequest", request, why);
    }
    if above(request, default) {
        let (value, default) = (text(request), text(default));
        let why =
            format!("default request value {value} is greater than default limit value {default}");
        say("defaultRequest", request, why);
    }
    if above(min, default) {
        let why =
            format!("min value {} is greater than default value {}", text(min), text(default));
        say("default", min, why);
    }
    if above(default, max) {
        let why =
            format!("default value {} is greater than max value {}", text(default), text(max));
        say("default", max, why);
    }
    if let Some(value) = ratio.and_then(quantity) {
        let mut difference = value.clone();
        difference.sub(&Quantity::new(1, Format::DecimalSi));
        if difference.sign().is_lt() {
            say("maxLimitRequestRatio", ratio, format!("ratio {value} is less than 1"));
        }
        if let (Some(min), Some(max)) = (min.and_then(quantity), max.and_then(quantity)) {
            let within = max.as_f64() / min.as_f64();
            if value.as_f64() > within {
                let why = format!("ratio {value} is greater than max/min = {within:.6}");
                say("maxLimitRequestRatio", ratio, why);
            }
        }
    }
    let differ = default.is_some()
        && request.is_some()
        && compare_quantities(default, request) != Ordering::Equal;
    if differ && !allows_overcommit(name) {
        let (default, value) = (text(default), text(request));
        let why =
            format!("default value {default} must equal to defaultRequest value {value} in {name}");
        say("defaultRequest", request, why);
    }
}

pub(crate) fn resource_quota(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    amounts(&spec.get("hard"), errors);
    scopes(&spec, errors);
    scope_selector(&spec, errors);
}

pub(crate) fn resource_quota_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    resource_quota(object, errors);
    let set = |object: &Value| -> BTreeSet<String> {
        let scopes = object.items_at(&["spec", "scopes"]).iter();
        scopes.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let root = Field::root(object);
    if set(object) != set(old) {
        root.get("spec").get("scopes").invalid(errors, IMMUTABLE);
    }
    if object.get("status") != old.get("status") {
        let status = root.get("status");
        amounts(&status.get("hard"), errors);
        amounts(&status.get("used"), errors);
    }
}

fn amounts(list: &Field<'_>, errors: &mut FieldErrors) {
    for (name, entry) in list.entries() {
        resource_name(name, &entry, errors);
        if !name.contains('/') && !is_quota_resource(name) {
            entry.invalid_value(errors, name, "must be a standard resource for quota");
        }
        quantity_value(name, &entry, errors);
    }
}

/// Every standard resource but `storage`, which a quota counts as `requests.storage`.
fn is_quota_resource(name: &str) -> bool {
    (name != "storage" && STANDARD_RESOURCES.contains(&name)) || is_quota_huge_page(name)
}

fn is_scope(scope: &str) -> bool {
    matches!(
        scope,
        "Terminating"
            | "NotTerminating"
            | "BestEffort"
            | "NotBestEffort"
            | "PriorityClass"
            | "VolumeAttributesClass"
            | "CrossNamespacePodAffinity"
    )
}

/// Whether a scope can tell objects apart that a resource is counted for.
fn scope_fits(scope: &str, resource: &str) -> bool {
    let is_compute = matches!(
        resource,
        "cpu" | "memory" | "limits.cpu" | "limits.memory" | "requests.cpu" | "requests.memory"
    );
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => {
            matches!(resource, "persistentvolumeclaims" | "requests.storage")
        }
        _ if is_scope(scope) => resource == "pods" || is_compute,
        _ => true,
    }
}

fn unfit_resources(spec: &Field<'_>, scope: &str) -> usize {
    let hard = spec.get("hard");
    let unfit =
        hard.entries().filter(|(name, _)| is_quota_resource(name) && !scope_fits(scope, name));
    unfit.count()
}

fn conflicts(scopes: &BTreeSet<String>) -> usize {
    [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]]
        .iter()
        .filter(|pair| pair.iter().all(|scope| scopes.contains(*scope)))
        .count()
}

fn scopes(spec: &Field<'_>, errors: &mut FieldErrors) {
    let scopes = spec.get("scopes");
    let mut seen = BTreeSet::new();
    for scope in scopes.items() {
        if !is_scope(scope.str()) {
            scopes.invalid(errors, "unsupported scope");
        }
        for _ in 0..unfit_resources(spec, scope.str()) {
            scopes.invalid(errors, "unsupported scope applied to resource");
        }
        seen.insert(scope.str().to_owned());
    }
    for _ in 0..conflicts(&seen) {
        scopes.invalid(errors, "conflicting scopes");
    }
}

fn scope_selector(spec: &Field<'_>, errors: &mut FieldErrors) {
    let selector = spec.get("scopeSelector");
    let list = selector.get("matchExpressions");
    let mut seen = BTreeSet::new();
    for expression in list.items() {
        // Compat: upstream doesn't say which of the expressions it is about.
        let at = list.with(expression.value());
        let (scope, operator) = (at.get("scopeName"), at.get("operator"));
        let values = at.get("values");
        if !is_scope(scope.str()) {
            scope.invalid_value(errors, scope.str(), "unsupported scope");
        }
        for _ in 0..unfit_resources(spec, scope.str()) {
            let shown = show_scope_selector(&list);
            list.invalid_shown(errors, &shown, "unsupported scope applied to resource");
        }
        let by_values = matches!(scope.str(), "PriorityClass" | "VolumeAttributesClass");
        if is_scope(scope.str()) && !by_values && !operator.is("Exists") {
            let why = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                       ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                       ResourceQuotaScopeNotBestEffort or \
                       ResourceQuotaScopeCrossNamespacePodAffinity";
            operator.invalid_value(errors, operator.str(), why);
        }
        match operator.str() {
            "In" | "NotIn" if values.is_empty() => {
                let why = "must be at least one value when `operator` is 'In' or 'NotIn' for \
                           scope selector";
                values.required(errors, why);
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for \
                           scope selector";
                values.invalid(errors, why);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => operator.invalid_value(errors, other, "not a valid selector operator"),
        }
        seen.insert(scope.str().to_owned());
    }
    for _ in 0..conflicts(&seen) {
        list.with(spec.value_at(&["scopes"])).invalid(errors, "conflicting scopes");
    }
}

fn show_scope_selector(list: &Field<'_>) -> String {
    let items: Vec<String> = list
        .items()
        .map(|item| {
            let text = |name: &str| meta::json::to_string(&item.str_at(&[name]).into());
            let values = item.value_at(&["values"]);
            format!(
                "{{\"ScopeName\":{},\"Operator\":{},\"Values\":{}}}",
                text("scopeName"),
                text("operator"),
                values.map_or_else(|| "null".to_owned(), meta::json::to_string)
            )
        })
        .collect();
    format!("{{\"MatchExpressions\":[{}]}}", items.join(","))
}
