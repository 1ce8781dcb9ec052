//! Validation that several kinds share. What one kind has is in `<group>/<kind>/validation.rs`.
//! Messages are word for word those of kube-apiserver, because people and tools read them.
//!
//! Defaulting has run, so a field that always gets a default is never reported as missing.

pub(crate) mod admission;
pub(crate) mod cron;
pub(crate) mod cursor;
pub(crate) mod data;
pub(crate) mod devices;
pub(crate) mod duration;
pub(crate) mod endpoints;
pub(crate) mod go_json;
#[cfg(test)]
mod growth_tests;
pub(crate) mod ip;
pub(crate) mod names;
pub(crate) mod pod_spec;
pub(crate) mod pod_template;
pub(crate) mod ratcheting;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod time_zones;
mod unified_diff;
pub(crate) mod workloads;

use meta::{
    FieldErrors, Value,
    field::RuleId,
    names::{
        is_qualified_name, regex_error, validate_annotations, validate_label_selector_values,
        validate_labels,
    },
};

use self::cursor::Field;
pub(crate) use self::ip::name_is_ip;

/// Values that the definition files list.
pub(crate) mod lists {
    include!(concat!(env!("OUT_DIR"), "/enums.rs"));
}

/// The metadata of a template for objects other than pods: labels and annotations only.
pub(crate) fn template_meta(metadata: &Field<'_>, errors: &mut FieldErrors) {
    let (labels, annotations) = (metadata.get("labels"), metadata.get("annotations"));
    validate_annotations(annotations.value(), &annotations.path(), errors);
    validate_labels(labels.value(), &labels.path(), errors);
    let names = metadata.value().and_then(Value::as_object).into_iter().flat_map(meta::Map::keys);
    for name in names.filter(|name| !matches!(name.as_str(), "annotations" | "labels")) {
        let field = metadata.get(name);
        if field.is_set() {
            // Compat: upstream makes the name from that of the Go field.
            let shown = if name == "uid" { "uID" } else { name };
            field.named(shown).forbidden(errors, "cannot be set");
        }
    }
}

/// The conditions of a status, as kinds have them that came late.
pub(crate) fn conditions(conditions: &Field<'_>, errors: &mut FieldErrors) {
    let mut seen = std::collections::BTreeSet::new();
    for condition in conditions.items() {
        let [name, status, reason, message] =
            ["type", "status", "reason", "message"].map(|part| condition.get(part));
        if !seen.insert(condition.str_at(&["type"])) {
            errors.duplicate(name.path(), name.str());
        }
        name.rule(errors, is_qualified_name);
        let statuses = ["False", "True", "Unknown"];
        if !statuses.contains(&status.str()) {
            status.not_supported(errors, &statuses);
        }
        let generation = condition.get("observedGeneration");
        if generation.int_or_zero() < 0 {
            generation.invalid(errors, "must be greater than or equal to zero");
        }
        if condition.get("lastTransitionTime").is_empty() {
            condition.get("lastTransitionTime").required(errors, "");
        }
        reason.require_rule(errors, is_condition_reason);
        for (field, max) in [(reason, 1024), (message, 32 * 1024)] {
            if field.len() > max {
                errors.too_long(field.path(), max);
            }
        }
    }
}

fn is_condition_reason(text: &str) -> Vec<String> {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"_,:".contains(&byte);
    let last = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let is_good = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(inner)
        && text.as_bytes().last().is_some_and(last);
    if is_good {
        return Vec::new();
    }
    vec![regex_error(
        "a condition reason must start with alphabetic character, optionally followed by a string \
         of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'",
        "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?",
        &["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"],
    )]
}

/// A label selector whose values may break `values` if they broke it before an update.
pub(crate) fn label_selector(selector: &Field<'_>, values: RuleId, errors: &mut FieldErrors) {
    validate_label_selector_values(selector.value(), values, &selector.path(), errors);
}

/// Items by name; of several with one name the first.
pub(crate) fn by_name<'a>(
    items: impl IntoIterator<Item = &'a Value, IntoIter: DoubleEndedIterator>,
) -> std::collections::HashMap<&'a str, &'a Value> {
    items.into_iter().rev().map(|item| (item.str_at(&["name"]), item)).collect()
}

/// Counts in a status, none of which may be negative.
pub(crate) fn counts(status: &Field<'_>, names: &[&str], errors: &mut FieldErrors) {
    for name in names {
        status.get(name).non_negative(errors);
    }
}
