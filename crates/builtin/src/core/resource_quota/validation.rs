//! Validation of resource quotas.

use std::collections::BTreeSet;

use meta::{FieldErrors, Value};

use crate::validation::{
    cursor::{Field, IMMUTABLE},
    pod_spec::{STANDARD_RESOURCES, is_quota_huge_page, quantity_value, resource_name},
};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    amounts(&spec.get("hard"), errors);
    scopes(&spec, errors);
    scope_selector(&spec, errors);
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(object, errors);
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
