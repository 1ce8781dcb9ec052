//! What controllers of pods have in common: selectors, templates, rolling updates, replica counts.

use meta::{FieldErrors, Value, names::is_percent, selector::LabelSelector};

use crate::validation::{
    counts,
    cursor::Field,
    label_selector,
    pod_spec::PodSpecOptions,
    pod_template::{self, runs_forever},
    ratcheting::{SPEC_SELECTOR_VALUE, ratchet},
};

pub(crate) fn replica_set_status(object: &Value, old: &Value, errors: &mut FieldErrors) {
    status_update(object, old, errors, |status, errors| {
        counts(
            status,
            &[
                "replicas",
                "fullyLabeledReplicas",
                "readyReplicas",
                "availableReplicas",
                "observedGeneration",
                "terminatingReplicas",
            ],
            errors,
        );
        let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
        within_replicas(status, &parts, errors);
        available_within_ready(status, "cannot be greater than readyReplicas", errors);
    });
}

pub(crate) type Validate = fn(&Value, PodSpecOptions, &mut FieldErrors);

pub(crate) fn update(
    object: &Value,
    old: &Value,
    options: PodSpecOptions,
    errors: &mut FieldErrors,
    validate: Validate,
    fixed: &[&str],
) {
    validate(object, for_update(options, old), errors);
    immutable(object, old, fixed, errors);
    ratchet(old, |old, errors| validate(old, options, errors), errors);
}

pub(crate) fn for_update(options: PodSpecOptions, old: &Value) -> PodSpecOptions {
    options.for_update(old.at(&["spec", "template", "spec"]))
}

pub(crate) fn immutable(object: &Value, old: &Value, fixed: &[&str], errors: &mut FieldErrors) {
    let (root, old) = (Field::root(object), Field::root(old));
    let (spec, old) = (root.get("spec"), old.get("spec"));
    for name in fixed {
        let field = spec.get(name);
        if field.value() == old.get(name).value() {
            continue;
        }
        let shown = show_selector(&field);
        field.invalid_shown(errors, &shown, crate::validation::cursor::IMMUTABLE);
    }
}

pub(crate) fn status_update(
    object: &Value,
    old: &Value,
    errors: &mut FieldErrors,
    rule: impl Fn(&Field<'_>, &mut FieldErrors),
) {
    if object.get("status") != old.get("status") {
        rule(&Field::root(object).get("status"), errors);
    }
}

pub(crate) fn within_replicas(status: &Field<'_>, parts: &[&str], errors: &mut FieldErrors) {
    let all = status.get("replicas").int_or_zero();
    for part in parts {
        if status.get(part).int_or_zero() > all {
            let field = status.get(part);
            let why = "cannot be greater than status.replicas";
            field.invalid_value(errors, field.int_or_zero(), why);
        }
    }
}

pub(crate) fn available_within_ready(status: &Field<'_>, why: &str, errors: &mut FieldErrors) {
    let available = status.get("availableReplicas");
    if available.int_or_zero() > status.get("readyReplicas").int_or_zero() {
        available.invalid_value(errors, available.int_or_zero(), why);
    }
}

pub(crate) fn collision_count(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = ["status", "collisionCount"];
    let Some(before) = old.i64_at(&path) else { return };
    let now = object.i64_at(&path);
    if now.is_none_or(|now| now < before) {
        let root = Field::root(object);
        let status = root.get("status");
        let count = status.get("collisionCount");
        count.invalid_value(errors, now.unwrap_or_default(), "cannot be decremented");
    }
}

/// True if the template can be held against it.
pub(crate) fn selector(spec: &Field<'_>, kind: &str, why: &str, errors: &mut FieldErrors) -> bool {
    let selector = spec.get("selector");
    if selector.is_set() {
        label_selector(&selector, SPEC_SELECTOR_VALUE, errors);
        if is_empty_selector(&selector) {
            let why = format!("empty selector is invalid for {kind}");
            selector.invalid_shown(errors, &show_selector(&selector), &why);
        }
    } else {
        selector.required(errors, "");
    }
    let parses = LabelSelector::from_object(selector.value()).is_ok();
    if !parses {
        selector.invalid_shown(errors, &show_selector(&selector), why);
    }
    parses
}

pub(crate) fn is_empty_selector(selector: &Field<'_>) -> bool {
    selector.get("matchLabels").is_empty() && selector.get("matchExpressions").is_empty()
}

/// A selector as Go prints it: labels before expressions.
pub(crate) fn show_selector(selector: &Field<'_>) -> String {
    let Some(value) = selector.value() else { return "null".to_owned() };
    let mut members = Vec::new();
    for name in ["matchLabels", "matchExpressions"] {
        if let Some(value) = value.get(name).filter(|_| !selector.get(name).is_empty()) {
            let text = if name == "matchLabels" {
                meta::json::to_string(value)
            } else {
                let items: Vec<String> =
                    value.as_array().unwrap_or_default().iter().map(show_expression).collect();
                format!("[{}]", items.join(","))
            };
            members.push(format!("\"{name}\":{text}"));
        }
    }
    format!("{{{}}}", members.join(","))
}

pub(crate) fn show_expression(expression: &Value) -> String {
    let text = |name: &str| meta::json::to_string(&expression.str_at(&[name]).into());
    let values = match expression.get("values") {
        Some(values) if !expression.items_at(&["values"]).is_empty() => {
            format!(",\"values\":{}", meta::json::to_string(values))
        }
        _ => String::new(),
    };
    format!("{{\"key\":{},\"operator\":{}{values}}}", text("key"), text("operator"))
}

pub(crate) fn template_of_replica_set(
    spec: &Field<'_>,
    options: PodSpecOptions,
    errors: &mut FieldErrors,
) {
    let template = spec.get("template");
    if let Ok(selector) = LabelSelector::from_object(spec.value_at(&["selector"])) {
        template_labels(&template, &selector, errors);
    }
    pod_template::validate(&template, options, errors);
    runs_forever(&template, "ReplicaSet", errors);
}

/// A selector that says something must select the pods of the template.
pub(crate) fn template_labels(
    template: &Field<'_>,
    selector: &LabelSelector,
    errors: &mut FieldErrors,
) {
    if !selector.is_everything() {
        template_labels_even_if_empty(template, selector, errors);
    }
}

pub(crate) fn template_labels_even_if_empty(
    template: &Field<'_>,
    selector: &LabelSelector,
    errors: &mut FieldErrors,
) {
    let labels = template.value_at(&["metadata", "labels"]);
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    if !selector.matches_with(label) {
        let metadata = template.get("metadata");
        let why = "`selector` does not match template `labels`";
        metadata.get("labels").invalid(errors, why);
    }
}

/// An update strategy of an unknown type. The error shows all of it, as Go prints the struct.
pub(crate) fn unknown_strategy(
    strategy: &Field<'_>,
    rolling: &Field<'_>,
    supported: &[&str],
    errors: &mut FieldErrors,
) {
    let supported: Vec<String> = supported.iter().map(|word| format!("\"{word}\"")).collect();
    let message = format!(
        r#"Unsupported value: {{"Type":{},"RollingUpdate":{}}}: supported values: {}"#,
        meta::json::to_string(&strategy.str_at(&["type"]).into()),
        show_rolling(rolling),
        supported.join(", ")
    );
    errors.push(meta::field::FieldReason::NotSupported, strategy.path(), message);
}

pub(crate) fn show_rolling(rolling: &Field<'_>) -> String {
    if !rolling.is_set() {
        return "null".to_owned();
    }
    let part = |name: &str| {
        rolling.value_at(&[name]).map_or_else(|| "0".to_owned(), meta::json::to_string)
    };
    format!(r#"{{"MaxUnavailable":{},"MaxSurge":{}}}"#, part("maxUnavailable"), part("maxSurge"))
}

/// A number that isn't negative, or a percentage.
pub(crate) fn int_or_percent(field: &Field<'_>, errors: &mut FieldErrors) {
    match field.value() {
        Some(Value::String(_)) => field.rule(errors, is_percent),
        _ => field.non_negative(errors),
    }
}

/// The number, or that before the percent sign. Text that is neither is 0, as in Go.
pub(crate) fn amount(field: &Field<'_>) -> i64 {
    match field.value() {
        Some(Value::String(text)) => text.trim_end_matches('%').parse().unwrap_or_default(),
        _ => field.int_or_zero(),
    }
}

pub(crate) fn at_most_all(field: &Field<'_>, errors: &mut FieldErrors) {
    let is_percentage = is_percent(field.str()).is_empty();
    if is_percentage && amount(field) > 100 {
        field.invalid(errors, "must not be greater than 100%");
    }
}
