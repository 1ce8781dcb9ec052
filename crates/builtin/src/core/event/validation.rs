//! Events, in both their groups. The newer one wants to know more.

use meta::{
    FieldErrors, Value,
    names::{is_dns1123_subdomain, is_qualified_name},
};

use crate::validation::cursor::{Field, IMMUTABLE};

pub(crate) fn validate(event: &Value, errors: &mut FieldErrors) {
    let root = Field::root(event);
    // Compat: the metadata comes second, and that of the core group only counts if the rest is good.
    let metadata = std::mem::take(errors);
    common(&root, errors);
    if is_core(&root) {
        if errors.is_empty() {
            *errors = metadata;
        }
        return;
    }
    errors.extend(metadata);
    series(&root, errors);
    if !root.get("eventTime").is_set() {
        root.get("eventTime").required(errors, "");
    }
    if !matches!(root.str_at(&["type"]), "Normal" | "Warning") {
        let why = format!("has invalid value: {}", root.str_at(&["type"]));
        root.get("type").invalid_value(errors, "", &why);
    }
    for (name, shown) in [
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("deprecatedSource", "source"),
    ] {
        let field = root.get(name);
        let is_given = match name {
            "deprecatedCount" => field.int_or_zero() != 0,
            "deprecatedSource" => {
                ["component", "host"].iter().any(|part| !field.str_at(&[part]).is_empty())
            }
            _ => field.is_set(),
        };
        if is_given {
            root.get(shown).invalid_value(errors, "", "needs to be unset");
        }
    }
}

pub(crate) fn validate_update(event: &Value, old: &Value, errors: &mut FieldErrors) {
    let (root, old) = (Field::root(event), Field::root(old));
    common(&root, errors);
    if is_core(&root) {
        return;
    }
    if root.get("series").value() != old.get("series").value() {
        series(&root, errors);
    }
    for (name, shown) in [
        ("regarding", "involvedObject"),
        ("reason", "reason"),
        ("note", "message"),
        ("deprecatedSource", "source"),
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        // Compat: it is compared twice.
        ("reason", "reason"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingController", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        let field = root.get(shown).with(root.value_at(&[name]));
        if field.value() != old.value_at(&[name]) {
            let is_text = old.value_at(&[name]).is_some_and(|old| old.as_str().is_some());
            if is_text && !field.is_set() && !name.ends_with("Time") {
                field.invalid_value(errors, "", IMMUTABLE);
                continue;
            }
            field.invalid(errors, IMMUTABLE);
        }
    }
}

fn is_core(event: &Field<'_>) -> bool {
    event.str_at(&["apiVersion"]) == "v1"
}

fn series(event: &Field<'_>, errors: &mut FieldErrors) {
    let series = event.get("series");
    if !series.is_set() {
        return;
    }
    if series.get("count").int_or_zero() < 2 {
        event.get("series.count").invalid_value(errors, "", "should be at least 2");
    }
    if !series.get("lastObservedTime").is_set() {
        event.get("series.lastObservedTime").required(errors, "");
    }
}

fn common(event: &Field<'_>, errors: &mut FieldErrors) {
    let is_core = is_core(event);
    let (object, note) =
        if is_core { ("involvedObject", "message") } else { ("regarding", "note") };
    let controller = if is_core { "reportingComponent" } else { "reportingController" };
    let namespace = event.str_at(&["metadata", "namespace"]);
    let involved = event.str_at(&[object, "namespace"]);
    let has_time = event.get("eventTime").is_set();
    let fits = match (has_time, involved) {
        (false, "") => matches!(namespace, "" | "default"),
        (false, involved) => namespace == involved,
        (true, "") => matches!(namespace, "default" | "kube-system"),
        (true, _) => true,
    };
    if !fits {
        let at = event.get("involvedObject");
        at.get("namespace").invalid_value(errors, involved, "does not match event.namespace");
    }
    if has_time {
        event.get(controller).require(errors);
        event.get(controller).rule(errors, is_qualified_name);
        for (name, shown, max) in [
            ("reportingInstance", "reportingInstance", 128),
            ("action", "action", 128),
            ("reason", "reason", 128),
            (note, "message", 1024),
        ] {
            let field = event.get(shown).with(event.value_at(&[name]));
            if shown != "message" {
                field.require(errors);
            }
            if field.len() > max {
                let why = format!("can have at most {max} characters");
                field.invalid_value(errors, "", &why);
            }
        }
    }
    for why in is_dns1123_subdomain(namespace) {
        event.get("namespace").invalid_value(errors, namespace, &why);
    }
}
