//! Small kinds that say how pods are placed, kept and led: disruption budgets, priority classes,
//! runtime classes.

use meta::{
    FieldErrors, Value,
    names::{is_dns1123_label, validate_labels},
};

use super::{
    conditions, counts,
    cursor::Field,
    label_selector,
    pod_spec::{container_resource_name, preemption_policy, requirements, tolerations},
    ratcheting::{SPEC_SELECTOR_VALUE, ratchet},
    workloads::{at_most_all, int_or_percent, show_selector},
};

pub(crate) fn disruption_budget(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let (min, max) = (spec.get("minAvailable"), spec.get("maxUnavailable"));
    if min.is_set() && max.is_set() {
        let show = |field: &Field<'_>| {
            field.value().map_or_else(|| "null".to_owned(), meta::json::to_string)
        };
        let policy = spec.get("unhealthyPodEvictionPolicy");
        let shown = format!(
            r#"{{"MinAvailable":{},"Selector":{},"MaxUnavailable":{},"UnhealthyPodEvictionPolicy":{}}}"#,
            show(&min),
            show_selector(&spec.get("selector")),
            show(&max),
            show(&policy)
        );
        spec.invalid_shown(errors, &shown, "minAvailable and maxUnavailable cannot be both set");
    }
    for amount in [&min, &max] {
        if amount.is_set() {
            int_or_percent(amount, errors);
            at_most_all(amount, errors);
        }
    }
    let selector = spec.get("selector");
    label_selector(&selector, SPEC_SELECTOR_VALUE, errors);
    let policies = ["AlwaysAllow", "IfHealthyBudget"];
    spec.get("unhealthyPodEvictionPolicy").one_of(errors, &policies);
}

pub(crate) fn disruption_budget_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    disruption_budget(object, errors);
    ratchet(old, disruption_budget, errors);
    if object.get("status") != old.get("status") {
        let root = Field::root(object);
        let names = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
        conditions(&root.get("status").get("conditions"), errors);
        counts(&root.get("status"), &names, errors);
    }
}

pub(crate) fn priority_class(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let metadata = root.get("metadata");
    let (name, value) = (metadata.get("name"), root.get("value").int_or_zero());
    if name.str().starts_with("system-") {
        if let Some(why) = system_class_error(name.str(), value, root.get("globalDefault").bool()) {
            let why = format!(
                "priority class names with 'system-' prefix are reserved for system use only. \
                 error: {why}"
            );
            name.forbidden(errors, &why);
        }
    } else if value > 1_000_000_000 {
        let why = "maximum allowed value of a user defined priority is 1000000000";
        root.get("value").forbidden(errors, why);
    }
    preemption_policy(&root.get("preemptionPolicy"), errors);
}

/// There are two classes of the system's own.
pub(crate) fn system_priority(name: &str) -> Option<i64> {
    match name {
        "system-node-critical" => Some(2_000_001_000),
        "system-cluster-critical" => Some(2_000_000_000),
        _ => None,
    }
}

fn system_class_error(name: &str, value: i64, is_default: bool) -> Option<String> {
    let Some(known) = system_priority(name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if value != known {
        return Some(format!("value of {name} PriorityClass must be {known}"));
    }
    is_default.then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

pub(crate) fn priority_class_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (root, old) = (Field::root(object), Field::root(old));
    if root.get("value").int_or_zero() != old.get("value").int_or_zero() {
        root.get("value").forbidden(errors, "may not be changed in an update.");
    }
    root.get("preemptionPolicy").immutable(&old.get("preemptionPolicy"), errors);
}

pub(crate) fn runtime_class(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    root.get("handler").require_rule(errors, is_dns1123_label);
    let overhead = root.get("overhead");
    if let Some(fixed) = overhead.value_at(&["podFixed"]) {
        let limits = Value::Object([("limits", fixed.clone())].into_iter().collect());
        requirements(&overhead.with(Some(&limits)), container_resource_name, errors);
    }
    let scheduling = root.get("scheduling");
    let selector = scheduling.get("nodeSelector");
    validate_labels(selector.value(), &selector.path(), errors);
    let list = scheduling.get("tolerations");
    tolerations(&list, errors);
    let items = object.items_at(&["scheduling", "tolerations"]);
    let key = |toleration: &Value| {
        ["key", "operator", "value", "effect"].map(|part| toleration.str_at(&[part]).to_owned())
    };
    for (at, toleration) in list.items().enumerate() {
        if items[..at].iter().any(|other| key(other) == key(&items[at])) {
            let part = |name: &str| meta::json::to_string(&items[at].str_at(&[name]).into());
            let seconds = items[at].i64_at(&["tolerationSeconds"]);
            let message = format!(
                "Duplicate value: {{\"Key\":{},\"Operator\":{},\"Value\":{},\"Effect\":{},\
                 \"TolerationSeconds\":{}}}",
                part("key"),
                part("operator"),
                part("value"),
                part("effect"),
                seconds.map_or_else(|| "null".to_owned(), |seconds| seconds.to_string())
            );
            errors.push(meta::field::FieldReason::Duplicate, toleration.path(), message);
        }
    }
}

pub(crate) fn runtime_class_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    runtime_class(object, errors);
    let (root, old) = (Field::root(object), Field::root(old));
    root.get("handler").immutable(&old.get("handler"), errors);
}
