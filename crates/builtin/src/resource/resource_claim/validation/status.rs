//! The status of a resource claim: its allocation, consumers and devices.

use std::collections::HashSet;

use meta::{FieldErrors, Value, names::is_dns1123_label};

use super::{Requests, request_reference, request_references};
use crate::resource::resource_slice::validation::binding_conditions;
use crate::validation::devices::{
    LIST_MAX, configuration, driver, each, parameters, pool_name, set,
};
use crate::validation::{
    conditions,
    cursor::{Field, IMMUTABLE},
    ip::interface_address,
    pod_spec::node_selector,
};

pub(crate) fn validate_status(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let (spec, status) = (root.get("spec"), root.get("status"));
    let names = Requests::of(&spec.get("devices"));
    let users = status.get("reservedFor");
    set(&users, 256, errors, "uid", |user, errors| {
        for field in ["resource", "name", "uid"] {
            user.get(field).require(errors);
        }
    });
    let allocation = status.get("allocation");
    device_statuses(&status, errors);
    if !users.is_empty() {
        if !allocation.is_set() {
            users.forbidden(errors, "may not be specified when `allocated` is not set");
        } else if object.at(&["metadata", "deletionTimestamp"]).is_some() {
            let before = old.items_at(&["status", "reservedFor"]);
            if users.items().any(|user| user.value().is_some_and(|user| !before.contains(user))) {
                let why = "new entries may not be added while `deallocationRequested` or \
                           `deletionTimestamp` are set";
                users.forbidden(errors, why);
            }
        }
    }
    let before = old.at(&["status", "allocation"]).filter(|before| !before.is_null());
    match (allocation.value(), before) {
        (Some(now), Some(before)) if now != before => allocation.invalid(errors, IMMUTABLE),
        (Some(_), None) => validate_allocation(&allocation, &names, errors),
        _ => {}
    }
}

fn validate_allocation(allocation: &Field<'_>, names: &Requests<'_>, errors: &mut FieldErrors) {
    let devices = allocation.get("devices");
    each(&devices.get("results"), LIST_MAX, errors, |result, errors| {
        request_reference(&result.get("request"), names, errors);
        device_id(&result, errors);
        binding_conditions(&result, errors);
        if result.get("shareID").is_set() {
            uid(&result.get("shareID"), errors);
        }
    });
    each(&devices.get("config"), 2 * LIST_MAX, errors, |config, errors| {
        let source = config.get("source");
        if source.require(errors) && !matches!(source.str(), "FromClaim" | "FromClass") {
            source.not_supported(errors, &["FromClaim", "FromClass"]);
        }
        request_references(&config.get("requests"), names, errors);
        configuration(&config, errors);
    });
    if allocation.get("nodeSelector").is_set() {
        node_selector(&allocation.get("nodeSelector"), errors);
    }
}

fn device_id(device: &Field<'_>, errors: &mut FieldErrors) {
    driver(&device.get("driver"), errors);
    pool_name(&device.get("pool"), errors);
    device.get("device").rule(errors, is_dns1123_label);
}

/// `driver/pool/device`, with the share of a device that has several.
fn shared_id(device: &Value) -> String {
    let id = ["driver", "pool", "device"].map(|part| device.str_at(&[part]));
    match device.str_at(&["shareID"]) {
        "" => id.join("/"),
        share => format!("{}/{share}", id.join("/")),
    }
}

fn device_statuses(status: &Field<'_>, errors: &mut FieldErrors) {
    let results = status.value_at(&["allocation", "devices"]);
    let results = results.map_or(&[][..], |devices| devices.items_at(&["results"]));
    let allocated: HashSet<String> = results.iter().map(shared_id).collect();
    let mut seen = HashSet::new();
    let devices = status.get("devices");
    for device in devices.items() {
        device_id(&device, errors);
        if device.get("shareID").is_set() {
            uid(&device.get("shareID"), errors);
        }
        let id = device.value().map(shared_id).unwrap_or_default();
        if !allocated.contains(&id) {
            let why = "must be an allocated device in the claim";
            device.invalid_shown(errors, &shown(device.value()), why);
        }
        if device.get("conditions").len() > 8 {
            errors.too_many(device.get("conditions").path(), device.get("conditions").len(), 8);
        }
        conditions(&device.get("conditions"), errors);
        if device.get("data").is_set() {
            parameters(&device.get("data"), errors);
        }
        network_data(&device.get("networkData"), errors);
    }
    for device in devices.items() {
        let id = device.value().map(shared_id).unwrap_or_default();
        if !seen.insert(id) {
            let message = format!("Duplicate value: {}", shown(device.value()));
            errors.push(meta::field::FieldReason::Duplicate, device.path(), message);
        }
    }
}

/// As Go shows what names a device.
fn shown(device: Option<&Value>) -> String {
    let text = |name: &str| {
        let text = device.map_or("", |device| device.str_at(&[name]));
        meta::json::to_string(&text.into())
    };
    format!(
        "{{\"Driver\":{},\"Pool\":{},\"Device\":{},\"ShareID\":{}}}",
        text("driver"),
        text("pool"),
        text("device"),
        text("shareID")
    )
}

fn network_data(data: &Field<'_>, errors: &mut FieldErrors) {
    for (name, max) in [("interfaceName", 256), ("hardwareAddress", 128)] {
        if data.get(name).len() > max {
            errors.too_long(data.get(name).path(), max);
        }
    }
    set(&data.get("ips"), 16, errors, "", |item, errors| interface_address(&item, errors));
}

fn uid(uid: &Field<'_>, errors: &mut FieldErrors) {
    let text = uid.str();
    let groups: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    let is_hex = groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if text.len() != 36 {
        let why = format!("error validating uid: invalid UUID length: {}", text.len());
        uid.invalid(errors, &why);
    } else if lengths != [8, 4, 4, 4, 12] || !is_hex {
        uid.invalid(errors, "error validating uid: invalid UUID format");
    } else if text != text.to_lowercase() {
        let why = "uid must be in RFC 4122 normalized form, \
                   `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters";
        uid.invalid(errors, why);
    }
}
