//! Validation of limit ranges.

use std::{cmp::Ordering, collections::BTreeSet};

use meta::{
    FieldErrors, Value,
    names::is_qualified_name,
    quantity::{Format, Quantity},
};

use crate::validation::{
    cursor::Field,
    pod_spec::{
        allows_overcommit, compare_quantities, container_resource_name, quantity, resource_name,
    },
};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
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
