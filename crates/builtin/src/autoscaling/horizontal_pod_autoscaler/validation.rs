//! Horizontal pod autoscalers, whose rules speak of the newer of their two versions.

use meta::{
    FieldErrors, Value,
    names::{is_dns1123_label, name_is_path_segment},
};

use crate::validation::{
    counts,
    cursor::Field,
    pod_spec::{container_resource_name, quantity},
};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    validate_spec(object, None, errors);
}

fn validate_spec(object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let (min, max) = (spec.get("minReplicas"), spec.get("maxReplicas"));
    if min.int().is_some_and(|min| min < 1) {
        min.invalid(errors, "must be greater than or equal to 1");
    }
    match max.int_or_zero() {
        0 => max.required(errors, "must be set and greater than 0"),
        ..0 => max.invalid(errors, "must be greater than or equal to 1"),
        _ => {}
    }
    if min.int().is_some_and(|min| max.int_or_zero() < min) {
        let why = "must be greater than or equal to `minReplicas`";
        max.invalid_value(errors, max.int_or_zero(), why);
    }
    scale_target(&spec.get("scaleTargetRef"), old, errors);
    for metric in spec.get("metrics").items() {
        metric_spec(&metric, errors);
    }
    let metrics = spec.get("metrics");
    let counts_others =
        |metric: &Field<'_>| matches!(metric.str_at(&["type"]), "Object" | "External");
    if min.int() == Some(0) && !metrics.items().any(|metric| counts_others(&metric)) {
        let why = "must specify at least one Object or External metric to support scaling to \
                   zero replicas";
        metrics.forbidden(errors, why);
    }
    let behavior = spec.get("behavior");
    for name in ["scaleUp", "scaleDown"] {
        let rules = behavior.get(name);
        if rules.is_set() {
            scaling_rules(&rules, errors);
        }
    }
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    validate_spec(object, Some(old), errors);
    if object.get("status") != old.get("status") {
        let root = Field::root(object);
        counts(&root.get("status"), &["currentReplicas", "desiredReplicas"], errors);
    }
}

fn is_path_segment(text: &str) -> Vec<String> {
    name_is_path_segment(text, false)
}

/// What is scaled has a group, but for the one kind of the oldest group that can be.
fn scale_target(target: &Field<'_>, old: Option<&Value>, errors: &mut FieldErrors) {
    let before = old.and_then(|old| old.at(&["spec", "scaleTargetRef"]));
    let unchanged = before.is_some_and(|before| {
        ["apiVersion", "kind"].iter().all(|part| before.str_at(&[part]) == target.str_at(&[part]))
    });
    reference_names(target, errors);
    if unchanged {
        return;
    }
    api_version(target, errors);
    let version = target.get("apiVersion");
    let has_group = version.str().split_once('/').is_some_and(|(group, _)| !group.is_empty());
    let is_readable = version.str().matches('/').count() <= 1;
    if is_readable && !has_group && !target.get("kind").is("ReplicationController") {
        version.invalid_value(errors, version.str(), "apiVersion must specify API group");
    }
}

fn object_reference(reference: &Field<'_>, errors: &mut FieldErrors) {
    reference_names(reference, errors);
    api_version(reference, errors);
}

fn reference_names(reference: &Field<'_>, errors: &mut FieldErrors) {
    reference.get("kind").require_rule(errors, is_path_segment);
    reference.get("name").require_rule(errors, is_path_segment);
}

fn api_version(reference: &Field<'_>, errors: &mut FieldErrors) {
    let version = reference.get("apiVersion");
    if version.str().matches('/').count() > 1 {
        let why = format!("unexpected GroupVersion string: {}", version.str());
        version.invalid(errors, &why);
    }
}

fn scaling_rules(rules: &Field<'_>, errors: &mut FieldErrors) {
    let window = rules.get("stabilizationWindowSeconds");
    if window.int_or_zero() < 0 {
        window.invalid(errors, "must be greater than or equal to zero");
    }
    if window.int_or_zero() > 3600 {
        window.invalid(errors, "must be less than or equal to 3600");
    }
    rules.get("selectPolicy").one_of(errors, &["Disabled", "Max", "Min"]);
    let policies = rules.get("policies");
    if policies.is_empty() {
        policies.required(errors, "must specify at least one Policy");
    }
    for policy in policies.items() {
        if !matches!(policy.str_at(&["type"]), "Pods" | "Percent") {
            policy.get("type").not_supported(errors, &["Percent", "Pods"]);
        }
        policy.get("value").positive(errors);
        policy.get("periodSeconds").positive(errors);
        if policy.get("periodSeconds").int_or_zero() > 1800 {
            policy.get("periodSeconds").invalid(errors, "must be less than or equal to 1800");
        }
    }
    let tolerance = rules.get("tolerance");
    let value = tolerance.value().and_then(quantity);
    if let Some(value) = value.filter(|value| value.sign().is_lt()) {
        let why = "must be greater than or equal to 0";
        tolerance.invalid_value(errors, value.to_string(), why);
    }
}

/// A metric's type and the field that goes with it, in the order in which upstream looks at them.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

fn metric_spec(metric: &Field<'_>, errors: &mut FieldErrors) {
    let kind = metric.get("type");
    let types = ["ContainerResource", "External", "Object", "Pods", "Resource"];
    if kind.is_empty() {
        kind.required(errors, "must specify a metric source type");
    }
    if !types.contains(&kind.str()) {
        kind.not_supported(errors, &types);
    }
    let mut present: Vec<&str> = Vec::new();
    for (_, name) in SOURCES {
        let source = metric.get(name);
        if source.is_set() {
            present.push(name);
            if present.len() == 1 {
                metric_source(name, &source, errors);
            }
        }
    }
    let expected = SOURCES.iter().find(|(known, _)| kind.is(known)).map(|(_, name)| *name);
    match expected {
        Some(name) if present.contains(&name) => {}
        Some(name) => {
            let why = "must populate information for the given metric source";
            metric.get(name).required(errors, why);
        }
        // Compat: said twice.
        None => kind.not_supported(errors, &types),
    }
    if present.len() != 1 {
        for name in present.iter().filter(|name| Some(**name) != expected) {
            metric.get(name).forbidden(errors, "must populate the given metric source only");
        }
    }
}

fn metric_source(name: &str, source: &Field<'_>, errors: &mut FieldErrors) {
    if matches!(name, "resource" | "containerResource") {
        let resource = source.get("name");
        if resource.is_empty() {
            resource.required(errors, "must specify a resource name");
        } else if name == "containerResource" {
            container_resource_name(resource.str(), &resource, errors);
        }
        if name == "containerResource" {
            let container = source.get("container");
            if container.is_empty() {
                container.required(errors, "must specify a container");
            } else {
                container.rule(errors, is_dns1123_label);
            }
        }
    } else {
        if name == "object" {
            object_reference(&source.get("describedObject"), errors);
        }
        let metric = source.get("metric");
        let metric_name = metric.get("name");
        if metric_name.is_empty() {
            metric_name.required(errors, "must specify a metric name");
        } else {
            metric_name.rule(errors, is_path_segment);
        }
    }
    let target = source.get("target");
    metric_target(&target, errors);
    let is_set = |part: &str| target.get(part).is_set();
    let average = target.get("averageValue");
    match name {
        "object" if !is_set("value") && !average.is_set() => {
            average.required(errors, "must set either a target value or averageValue");
        }
        "external" if !is_set("value") && !average.is_set() => {
            let why = "must set either a target value for metric or a per-pod target";
            average.required(errors, why);
        }
        "external" if is_set("value") && average.is_set() => {
            let why = "may not set both a target value for metric and a per-pod target";
            target.get("value").forbidden(errors, why);
        }
        "pods" if !average.is_set() => {
            average.required(errors, "must specify a positive target averageValue");
        }
        "resource" | "containerResource" => {
            match (is_set("averageUtilization"), average.is_set()) {
                (false, false) => {
                    let why = "must set either a target raw value or a target utilization";
                    target.get("averageUtilization").required(errors, why);
                }
                (true, true) => {
                    let why = "may not set both a target raw value and a target utilization";
                    average.forbidden(errors, why);
                }
                _ => {}
            }
        }
        _ => {}
    }
}

fn metric_target(target: &Field<'_>, errors: &mut FieldErrors) {
    let kind = target.get("type");
    if kind.is_empty() {
        kind.required(errors, "must specify a metric target type");
    }
    if !matches!(kind.str(), "Utilization" | "Value" | "AverageValue") {
        let why = "must be either Utilization, Value, or AverageValue";
        kind.invalid_value(errors, kind.str(), why);
    }
    for name in ["value", "averageValue"] {
        let amount = target.get(name);
        let given = amount.value().and_then(quantity);
        if let Some(given) = given.filter(|given| !given.sign().is_gt()) {
            amount.invalid_value(errors, given.to_string(), "must be positive");
        }
    }
    let utilization = target.get("averageUtilization");
    if utilization.int().is_some_and(|utilization| utilization < 1) {
        utilization.invalid(errors, "must be greater than 0");
    }
}
