//! Where a pod wants to be: node selectors, and the pods it wants to be near to or far from.

use std::collections::{HashMap, HashSet};

use meta::{
    FieldErrors, Value,
    field::RuleId,
    names::{is_dns1123_label, is_dns1123_subdomain, is_label_value, is_qualified_name},
};

use crate::validation::{cursor::Field, label_selector};

pub(crate) fn validate(affinity: &Field<'_>, errors: &mut FieldErrors) {
    let node = affinity.get("nodeAffinity");
    if node.get(REQUIRED).is_set() {
        node_selector(&node.get(REQUIRED), errors);
    }
    for term in node.get(PREFERRED).items() {
        weight(&term, errors);
        node_selector_term(&term.get("preference"), true, errors);
    }
    for (name, values) in [
        ("podAffinity", POD_AFFINITY_SELECTOR_VALUE),
        ("podAntiAffinity", POD_ANTI_AFFINITY_SELECTOR_VALUE),
    ] {
        let affinity = affinity.get(name);
        for term in affinity.get(REQUIRED).items() {
            pod_term(&term, values, errors);
        }
        for term in affinity.get(PREFERRED).items() {
            weight(&term, errors);
            pod_term(&term.get("podAffinityTerm"), values, errors);
        }
    }
}

/// The values of the label selectors of a pod's affinity.
pub(crate) const POD_AFFINITY_SELECTOR_VALUE: RuleId = RuleId::new("pod affinity selector value");
pub(crate) const POD_ANTI_AFFINITY_SELECTOR_VALUE: RuleId =
    RuleId::new("pod anti-affinity selector value");

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

fn weight(term: &Field<'_>, errors: &mut FieldErrors) {
    let weight = term.get("weight");
    if !(1..=100).contains(&weight.int_or_zero()) {
        weight.invalid_value(errors, weight.int_or_zero(), "must be in the range 1-100");
    }
}

pub(crate) fn node_selector(selector: &Field<'_>, errors: &mut FieldErrors) {
    let terms = selector.get("nodeSelectorTerms");
    if terms.is_empty() {
        return terms.required(errors, "must have at least one node selector term");
    }
    for term in terms.items() {
        node_selector_term(&term, false, errors);
    }
}

/// The values that a required node selector compares with are label values or node names.
pub(crate) const NODE_SELECTOR_VALUE: RuleId = RuleId::new("node selector value");

fn node_selector_term(term: &Field<'_>, is_preferred: bool, errors: &mut FieldErrors) {
    for requirement in term.get("matchExpressions").items() {
        node_requirement(&requirement, is_preferred, errors);
    }
    for requirement in term.get("matchFields").items() {
        node_field_requirement(&requirement, is_preferred, errors);
    }
}

/// Compat: the values of a preferred term are not looked at.
fn node_requirement(requirement: &Field<'_>, is_preferred: bool, errors: &mut FieldErrors) {
    let (operator, values) = (requirement.get("operator"), requirement.get("values"));
    match operator.str() {
        "In" | "NotIn" if values.is_empty() => {
            values.required(errors, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            values.forbidden(errors, why);
        }
        "Gt" | "Lt" if values.len() != 1 => {
            let why = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            values.required(errors, why);
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => operator.invalid_value(errors, other, "not a valid selector operator"),
    }
    requirement.get("key").rule(errors, is_qualified_name);
    if !is_preferred {
        errors.with_rule(NODE_SELECTOR_VALUE, |errors| {
            for value in values.items() {
                value.rule(errors, is_label_value);
            }
        });
    }
}

fn node_field_requirement(requirement: &Field<'_>, is_preferred: bool, errors: &mut FieldErrors) {
    let (operator, values) = (requirement.get("operator"), requirement.get("values"));
    match operator.str() {
        "In" | "NotIn" if values.len() != 1 => {
            let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field \
                       selector";
            values.required(errors, why);
        }
        "In" | "NotIn" => {}
        other => operator.invalid_value(errors, other, "not a valid selector operator"),
    }
    let key = requirement.get("key");
    if key.is("metadata.name") {
        let names = |errors: &mut FieldErrors| {
            for value in values.items() {
                value.rule(errors, is_dns1123_subdomain);
            }
        };
        if is_preferred {
            names(errors);
        } else {
            errors.with_rule(NODE_SELECTOR_VALUE, names);
        }
    } else {
        key.invalid_value(errors, key.str(), "not a valid field selector key");
    }
}

fn pod_term(term: &Field<'_>, values: RuleId, errors: &mut FieldErrors) {
    for name in ["labelSelector", "namespaceSelector"] {
        label_selector(&term.get(name), values, errors);
    }
    // Compat: upstream doesn't say which of the namespaces it is about.
    for name in term.get("namespaces").items() {
        for why in is_dns1123_label(name.str()) {
            term.get("namespace").invalid_value(errors, name.str(), &why);
        }
    }
    label_keys(term, errors);
    let key = term.get("topologyKey");
    if key.is_empty() {
        key.required(errors, "can not be empty");
    }
    key.rule(errors, is_qualified_name);
}

/// `matchLabelKeys` and `mismatchLabelKeys`, which add to the label selector beside them.
pub(crate) fn label_keys(term: &Field<'_>, errors: &mut FieldErrors) {
    let selector = term.value_at(&["labelSelector"]);
    let (matching, mismatching) = (term.get("matchLabelKeys"), term.get("mismatchLabelKeys"));
    for keys in [&matching, &mismatching] {
        if keys.is_empty() {
            continue;
        }
        if selector.is_none() {
            keys.forbidden(errors, "must not be specified when labelSelector is not set");
            continue;
        }
        for key in keys.items() {
            key.rule(errors, is_qualified_name);
        }
    }
    if let Some(selector) = selector {
        let mut seen: HashSet<&str> = HashSet::new();
        let last: HashMap<&str, usize> =
            texts(&matching).enumerate().map(|(at, key)| (key, at)).collect();
        if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
            seen.extend(labels.keys().map(meta::Str::as_str));
        }
        for expression in selector.items_at(&["matchExpressions"]) {
            let key = expression.str_at(&["key"]);
            let at = last.get(key).copied();
            if let Some(at) = at.filter(|_| seen.contains(&key)) {
                // Compat: the index is that of the term, not of the list.
                let why = "exists in both matchLabelKeys and labelSelector";
                term.index(at).invalid_value(errors, key, why);
            }
            seen.insert(key);
        }
    }
    let mismatching: HashSet<&str> = texts(&mismatching).collect();
    for key in matching.items() {
        if mismatching.contains(key.str()) {
            key.invalid(errors, "exists in both matchLabelKeys and mismatchLabelKeys");
        }
    }
}

/// The texts of a list; what is no text counts as empty.
fn texts<'a>(list: &Field<'a>) -> impl Iterator<Item = &'a str> {
    let items = list.value().and_then(Value::as_array).unwrap_or_default().iter();
    items.map(|item| item.as_str().unwrap_or_default())
}

pub(crate) fn taint_effect(effect: &Field<'_>, errors: &mut FieldErrors) {
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    if !effects.contains(&effect.str()) {
        effect.not_supported(errors, &effects);
    }
}
