//! Validation of nodes.

use std::{cmp::Ordering, collections::BTreeSet};

use meta::{
    FieldErrors, Value,
    field::FieldReason,
    names::{is_label_value, is_qualified_name},
};

use crate::validation::{
    cursor::Field,
    ip::{legacy_cidr, parse_cidr},
    pod_spec::{quantity_value, taint_effect},
};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    // Compat: upstream looks for taints under `metadata`.
    taints(&root, errors);
    resources(&root, errors);
    pod_cidrs(&root.get("spec").get("podCIDRs"), errors);
    declared_features(&root, errors);
}

fn pod_cidrs(ranges: &Field<'_>, errors: &mut FieldErrors) {
    for range in ranges.items() {
        legacy_cidr(&range, &[], errors);
    }
    if ranges.len() > 1 {
        let families: BTreeSet<bool> = ranges
            .items()
            .filter_map(|range| parse_cidr(range.str()))
            .map(|range| range.address.is_ipv4())
            .collect();
        let first_bad = ranges.items().enumerate().find(|(_, r)| parse_cidr(r.str()).is_none());
        if let Some((at, range)) = first_bad {
            let message = format!(
                "Internal error: invalid PodCIDRs. failed to check with dual stack with \
                 error:invalid CIDR[{at}]: <nil> (invalid CIDR address: {})",
                range.str()
            );
            errors.push(FieldReason::Internal, ranges.path(), message);
        }
        if first_bad.is_some() || families.len() != 2 || ranges.len() > 2 {
            ranges.invalid(errors, "may specify no more than one CIDR for each IP family");
        }
    }
}

/// `MyFeature`, `MyFeature/mySubFeature`
fn declared_features(node: &Field<'_>, errors: &mut FieldErrors) {
    let status = node.get("status");
    let features = status.get("declaredFeatures");
    let mut last: Option<&str> = None;
    for feature in features.items() {
        let text = feature.str();
        match last.map(|last| last.cmp(text)) {
            Some(Ordering::Equal) => errors.duplicate(feature.path(), text),
            Some(Ordering::Greater) => {
                feature.invalid(errors, "list must be sorted alphabetically");
            }
            Some(Ordering::Less) | None => {}
        }
        last = Some(text);
        let plain =
            |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if text.len() > 253 {
            let shown = meta::field::quote(text);
            let why = format!("invalid feature name {shown}: must be no more than 253 characters");
            feature.invalid(errors, &why);
        } else if !text.starts_with(|first: char| first.is_ascii_uppercase())
            || !text.split('/').all(plain)
        {
            let why = format!(
                "invalid feature name {}: must start with an UpperCamelCase segment, with \
                 subsequent segments separated by '/' (e.g., MyFeature or \
                 MyFeature/mySubFeature), and contain only alphanumeric characters and slashes",
                meta::field::quote(text)
            );
            feature.invalid(errors, &why);
        }
    }
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    // Compat: everything that is checked on create is checked again, some of it twice.
    taints(&root, errors);
    resources(&root, errors);
    pod_cidrs(&spec.get("podCIDRs"), errors);
    declared_features(&root, errors);
    update(object, old, errors);
}

pub(crate) fn validate_status_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    update(object, old, errors);
}

fn update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (root, old_root) = (Field::root(object), Field::root(old));
    let spec = root.get("spec");
    resources(&root, errors);
    declared_features(&root, errors);
    let status = root.get("status");
    let addresses = object.items_at(&["status", "addresses"]);
    let mut seen = std::collections::HashSet::new();
    for (at, address) in status.get("addresses").items().enumerate() {
        let value = &addresses[at];
        if !seen.insert(meta::json::to_string(value)) {
            let text = |name: &str| meta::json::to_string(&value.str_at(&[name]).into());
            let message = format!(
                "Duplicate value: {{\"Type\":{},\"Address\":{}}}",
                text("type"),
                text("address")
            );
            errors.push(FieldReason::Duplicate, address.path(), message);
        }
    }
    let before = old.items_at(&["spec", "podCIDRs"]);
    if !before.is_empty() && object.items_at(&["spec", "podCIDRs"]) != before {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        spec.get("podCIDRs").forbidden(errors, why);
    }
    let provider = old_root.str_at(&["spec", "providerID"]);
    if !provider.is_empty() && provider != spec.str_at(&["providerID"]) {
        let why = "node updates may not change providerID except from \"\" to valid";
        spec.get("providerID").forbidden(errors, why);
    }
    taints(&root, errors);
    if spec.str_at(&["externalID"]) != old_root.str_at(&["spec", "externalID"]) {
        spec.get("externalID").forbidden(errors, "may not be updated");
    }
}

fn taints(node: &Field<'_>, errors: &mut FieldErrors) {
    let metadata = node.get("metadata");
    let taints = metadata.get("taints").with(node.value_at(&["spec", "taints"]));
    let mut seen = BTreeSet::new();
    for taint in taints.items() {
        taint.get("key").rule(errors, is_qualified_name);
        let value = taint.get("value");
        let wrong = is_label_value(value.str());
        if !wrong.is_empty() {
            value.invalid(errors, &wrong.join(";"));
        }
        let effect = taint.get("effect");
        if effect.is_empty() {
            effect.required(errors, "");
        } else {
            taint_effect(&effect, errors);
        }
        let (key, effect) = (taint.str_at(&["key"]), taint.str_at(&["effect"]));
        if !seen.insert((key.to_owned(), effect.to_owned())) {
            let text = |name: &str| meta::json::to_string(&taint.str_at(&[name]).into());
            let added = taint.value_at(&["timeAdded"]);
            let message = format!(
                "Duplicate value: {{\"Key\":{},\"Value\":{},\"Effect\":{},\"TimeAdded\":{}}}: \
                 taints must be unique by key and effect pair",
                text("key"),
                text("value"),
                text("effect"),
                added.map_or_else(|| "null".to_owned(), meta::json::to_string),
            );
            errors.push(FieldReason::Duplicate, taint.path(), message);
        }
    }
}

fn resources(node: &Field<'_>, errors: &mut FieldErrors) {
    let status = node.get("status");
    for list in ["capacity", "allocatable"] {
        let list = status.get(list);
        for (name, entry) in list.entries() {
            // Compat: here resources are fields, not keys.
            quantity_value(name, &list.get(name).with(entry.value()), errors);
        }
    }
}
