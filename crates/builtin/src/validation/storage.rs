//! The storage group.

use std::collections::BTreeSet;

use meta::{
    FieldErrors, Value,
    names::{is_dns1123_subdomain, is_qualified_name, validate_label_selector},
};

use crate::core::persistent_volume::validation as persistent_volume;

use super::{
    cursor::{Field, IMMUTABLE},
    pod_spec::{quantity, volume_sources::csi_driver_name},
    workloads::show_selector,
};

pub(crate) fn class(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    driver(&root.get("provisioner"), errors);
    parameters(&root.get("parameters"), errors);
    root.get("reclaimPolicy").one_of_or_default(errors, &["Delete", "Retain"]);
    root.get("volumeBindingMode").one_of(errors, &["Immediate", "WaitForFirstConsumer"]);
    topologies(&root.get("allowedTopologies"), errors);
}

pub(crate) fn class_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    class(object, errors);
    let (root, old) = (Field::root(object), Field::root(old));
    for name in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        root.get(name).immutable(&old.get(name), errors);
    }
}

fn driver(name: &Field<'_>, errors: &mut FieldErrors) {
    if name.require(errors) {
        let lower = name.str().to_lowercase();
        for why in is_qualified_name(&lower) {
            name.invalid_value(errors, lower.as_str(), &why);
        }
    }
}

fn parameters(parameters: &Field<'_>, errors: &mut FieldErrors) {
    if parameters.len() > 512 {
        return errors.too_long(parameters.path(), 512);
    }
    let mut bytes = 0;
    for (key, value) in parameters.entries() {
        if key.is_empty() {
            parameters.invalid_value(errors, key, "field can not be empty.");
        }
        bytes += key.len() + value.len();
    }
    if bytes > 256 * 1024 {
        errors.too_long(parameters.path(), 256 * 1024);
    }
}

fn topologies(terms: &Field<'_>, errors: &mut FieldErrors) {
    let mut seen: Vec<Vec<(String, BTreeSet<String>)>> = Vec::new();
    for term in terms.items() {
        let mut expressions: Vec<(String, BTreeSet<String>)> = Vec::new();
        for expression in term.get("matchLabelExpressions").items() {
            let (key, values) = (expression.get("key"), expression.get("values"));
            values.require(errors);
            let mut set = BTreeSet::new();
            for value in values.items() {
                if !set.insert(value.str().to_owned()) {
                    value.duplicate(errors);
                }
            }
            key.rule(errors, is_qualified_name);
            if expressions.iter().any(|(known, _)| known == key.str()) {
                key.duplicate(errors);
            }
            expressions.push((key.str().to_owned(), set));
        }
        expressions.sort();
        // Compat: upstream compares with the terms to come too, which are still empty then.
        let to_come = if expressions.is_empty() { terms.len() - seen.len() } else { 0 };
        let same = seen.iter().filter(|other| **other == expressions).count();
        for _ in 0..same + to_come {
            errors.duplicate(term.get("matchLabelExpressions").path(), "");
        }
        seen.push(expressions);
    }
}

pub(crate) fn attributes_class(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    driver(&root.get("driverName"), errors);
    parameters(&root.get("parameters"), errors);
    if root.get("parameters").is_empty() {
        root.get("parameters").required(errors, "must contain at least one key/value pair");
    }
}

pub(crate) fn attributes_class_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (root, old) = (Field::root(object), Field::root(old));
    for name in ["driverName", "parameters"] {
        if root.get(name).value() != old.get(name).value() {
            root.get(name).forbidden(errors, &format!("updates to {name} are forbidden."));
        }
    }
    attributes_class(object, errors);
}

pub(crate) fn attachment(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    csi_driver_name(&spec.get("attacher"), errors);
    let source = spec.get("source");
    let (inline, name) = (source.get("inlineVolumeSpec"), source.get("persistentVolumeName"));
    let why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (inline.is_set(), name.is_set()) {
        (false, false) => source.required(errors, why),
        (true, true) => source.forbidden(errors, why),
        (false, true) if name.is_empty() => {
            name.required(errors, "must specify non empty persistentVolumeName");
        }
        (true, false) => persistent_volume::inline(&inline, errors),
        _ => {}
    }
    spec.get("nodeName").rule(errors, is_dns1123_subdomain);
    let status = root.get("status");
    for name in ["attachError", "detachError"] {
        let error = status.get(name);
        let code = error.get("errorCode");
        if !(0..=i64::from(i32::MAX)).contains(&code.int_or_zero()) {
            code.in_range(errors, 0, i64::from(i32::MAX));
        }
        if error.get("message").len() > 1024 {
            errors.too_long(error.get("message").path(), 256 * 1024);
        }
    }
    if name.is_set() {
        name.rule(errors, is_dns1123_subdomain);
    }
}

pub(crate) fn attachment_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    attachment(object, errors);
    if object.get("spec") != old.get("spec") {
        let root = Field::root(object);
        root.get("spec").invalid(errors, IMMUTABLE);
    }
}

pub(crate) fn csi_node(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let mut names = BTreeSet::new();
    for driver in spec.get("drivers").items() {
        let (name, id) = (driver.get("name"), driver.get("nodeID"));
        csi_driver_name(&name, errors);
        id.require(errors);
        if id.len() > 256 {
            id.invalid(errors, "must be 256 characters or less");
        }
        driver.get("allocatable").get("count").non_negative(errors);
        if !names.insert(name.str().to_owned()) {
            name.duplicate(errors);
        }
        let mut keys = BTreeSet::new();
        // Compat: upstream doesn't say that it is about `topologyKeys`.
        for key in driver.get("topologyKeys").items() {
            if key.is_empty() {
                driver.required(errors, "");
            }
            if !keys.insert(key.str().to_owned()) {
                errors.duplicate(driver.path(), key.str());
            }
            driver.with(key.value()).rule(errors, is_qualified_name);
        }
    }
}

pub(crate) fn csi_node_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    csi_node(object, errors);
    let root = Field::root(object);
    let spec = root.get("spec");
    let without_count = |driver: &Value| {
        let mut driver = driver.clone();
        driver.remove_at(&["allocatable"]);
        driver
    };
    for before in old.items_at(&["spec", "drivers"]) {
        for driver in object.items_at(&["spec", "drivers"]) {
            if driver.get("name") == before.get("name")
                && without_count(driver) != without_count(before)
            {
                let text = |name: &str| meta::json::to_string(&driver.str_at(&[name]).into());
                let keys = driver.get("topologyKeys");
                let shown = format!(
                    r#"{{"Name":{},"NodeID":{},"TopologyKeys":{},"Allocatable":null}}"#,
                    text("name"),
                    text("nodeID"),
                    keys.map_or_else(|| "null".to_owned(), meta::json::to_string)
                );
                spec.get("drivers").invalid_shown(errors, &shown, IMMUTABLE);
            }
        }
    }
}

pub(crate) fn csi_driver(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    spec.get("fsGroupPolicy").one_of(errors, &["File", "None", "ReadWriteOnceWithFSType"]);
    let requests = spec.get("tokenRequests");
    let mut audiences = BTreeSet::new();
    for request in requests.items() {
        let (audience, seconds) = (request.get("audience"), request.get("expirationSeconds"));
        if !audiences.insert(audience.str().to_owned()) {
            errors.duplicate(audience.path(), audience.str());
            continue;
        }
        if seconds.int().is_some_and(|seconds| seconds < 600) {
            seconds.invalid(errors, "may not specify a duration less than 10 minutes");
        }
        if seconds.int_or_zero() > 1 << 32 {
            seconds.invalid(errors, "may not specify a duration larger than 2^32 seconds");
        }
    }
    let modes = spec.get("volumeLifecycleModes");
    for mode in modes.items() {
        if !matches!(mode.str(), "Persistent" | "Ephemeral") {
            errors.not_supported(modes.path(), mode.str(), &["Persistent", "Ephemeral"]);
        }
    }
    let period = spec.get("nodeAllocatableUpdatePeriodSeconds");
    if period.int().is_some_and(|period| period < 10) {
        period.invalid(errors, "must be greater than or equal to 10 seconds");
    }
    let in_secrets = spec.get("serviceAccountTokenInSecrets");
    if in_secrets.is_set() && requests.is_empty() {
        let why = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        in_secrets.invalid(errors, why);
    }
}

pub(crate) fn csi_driver_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    csi_driver(object, errors);
    let (root, old) = (Field::root(object), Field::root(old));
    let (spec, before) = (root.get("spec"), old.get("spec"));
    // Compat: upstream has another name for this field.
    let attach = spec.get("attachedRequired").with(spec.value_at(&["attachRequired"]));
    attach.immutable(&before.get("attachRequired"), errors);
    spec.get("volumeLifecycleModes").immutable(&before.get("volumeLifecycleModes"), errors);
}

pub(crate) fn capacity(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let topology = root.get("nodeTopology");
    validate_label_selector(topology.value(), &topology.path(), errors);
    root.get("storageClassName").rule(errors, is_dns1123_subdomain);
    let amount = root.get("capacity");
    if let Some(value) = amount.value().and_then(quantity).filter(|value| value.sign().is_lt()) {
        let why = "must be greater than or equal to 0";
        amount.invalid_value(errors, value.to_string(), why);
    }
}

pub(crate) fn capacity_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    capacity(object, errors);
    let (root, old) = (Field::root(object), Field::root(old));
    let topology = root.get("nodeTopology");
    if topology.value() != old.get("nodeTopology").value() {
        topology.invalid_shown(errors, &show_selector(&topology), IMMUTABLE);
    }
    root.get("storageClassName").immutable(&old.get("storageClassName"), errors);
}
