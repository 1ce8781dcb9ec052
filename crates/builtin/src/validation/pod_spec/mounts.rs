//! Where the volumes of a pod appear in a container: as directories or as block devices.

use std::collections::{BTreeMap, BTreeSet};

use meta::FieldErrors;

use super::{volume_sources::relative_path, volumes::Volumes};
use crate::validation::cursor::Field;

pub(crate) fn validate(container: &Field<'_>, volumes: &Volumes<'_>, errors: &mut FieldErrors) {
    let (mounts, devices) = (container.get("volumeMounts"), container.get("volumeDevices"));
    let mount_paths = paths(&mounts, "mountPath");
    let device_paths = paths(&devices, "devicePath");
    let is_privileged = container.bool_at(&["securityContext", "privileged"]);
    validate_mounts(&mounts, &device_paths, volumes, is_privileged, errors);
    validate_devices(&devices, &mount_paths, volumes, errors);
}

/// The path of each volume.
fn paths<'a>(list: &Field<'a>, path: &str) -> BTreeMap<&'a str, &'a str> {
    let items = list.value().and_then(meta::Value::as_array).unwrap_or_default().iter();
    items.map(|item| (item.str_at(&["name"]), item.str_at(&[path]))).collect()
}

fn validate_mounts(
    mounts: &Field<'_>,
    devices: &BTreeMap<&str, &str>,
    volumes: &Volumes<'_>,
    is_privileged: bool,
    errors: &mut FieldErrors,
) {
    let mut seen = BTreeSet::new();
    let device_paths: BTreeSet<&str> = devices.values().copied().collect();
    for mount in mounts.items() {
        let (name, path) = (mount.get("name"), mount.get("mountPath"));
        name.require(errors);
        if !volumes.contains_key(name.str()) {
            name.not_found(errors);
        }
        path.require(errors);
        if !seen.insert(path.str().to_owned()) {
            path.invalid(errors, "must be unique");
        }
        if devices.contains_key(name.str()) {
            name.invalid(errors, "must not already exist in volumeDevices");
        }
        if device_paths.contains(path.str()) {
            path.invalid(errors, "must not already exist as a path in volumeDevices");
        }
        // Compat: for the rest, upstream doesn't say which of the mounts it is about.
        let anonymous = mounts.with(mount.value());
        let (sub, expr) = (anonymous.get("subPath"), anonymous.get("subPathExpr"));
        relative_path(&sub, errors);
        if !expr.is_empty() {
            if !sub.is_empty() {
                let why = "subPathExpr and subPath are mutually exclusive";
                mount.get("subPathExpr").invalid(errors, why);
            }
            relative_path(&expr, errors);
        }
        let propagation = anonymous.get("mountPropagation");
        propagation.one_of(errors, &["Bidirectional", "HostToContainer", "None"]);
        if propagation.is("Bidirectional") && !is_privileged {
            let why = "Bidirectional mount propagation is available only to privileged containers";
            propagation.forbidden(errors, why);
        }
        recursive_read_only(&anonymous, errors);
    }
}

fn recursive_read_only(mount: &Field<'_>, errors: &mut FieldErrors) {
    let recursive = mount.get("recursiveReadOnly");
    match recursive.str() {
        "Enabled" | "IfPossible" => {
            if !mount.get("readOnly").bool() {
                recursive.forbidden(errors, "may only be specified when readOnly is true");
            }
            let propagation = mount.get("mountPropagation");
            if propagation.is_set() && !propagation.is("None") {
                let why = "may only be specified when mountPropagation is None or not specified";
                recursive.forbidden(errors, why);
            }
        }
        _ => recursive.one_of(errors, &["Disabled", "Enabled", "IfPossible"]),
    }
}

fn validate_devices(
    devices: &Field<'_>,
    mounts: &BTreeMap<&str, &str>,
    volumes: &Volumes<'_>,
    errors: &mut FieldErrors,
) {
    let (mut paths, mut names) = (BTreeSet::new(), BTreeSet::new());
    let mount_paths: BTreeSet<&str> = mounts.values().copied().collect();
    for device in devices.items() {
        let (name, path) = (device.get("name"), device.get("devicePath"));
        name.require(errors);
        if names.contains(name.str()) {
            name.invalid(errors, "must be unique");
        }
        match volumes.get(name.str()) {
            None => name.not_found(errors),
            Some(volume) => {
                let is_claim =
                    ["persistentVolumeClaim", "ephemeral"].iter().any(|s| volume.get(s).is_some());
                if !is_claim {
                    let why = "can only use volume source type of PersistentVolumeClaim or \
                               Ephemeral for block mode";
                    name.invalid(errors, why);
                }
            }
        }
        path.require(errors);
        if paths.contains(path.str()) {
            path.invalid(errors, "must be unique");
        }
        if path.str().split('/').any(|part| part == "..") {
            path.invalid(errors, "can not contain backsteps ('..')");
        } else {
            paths.insert(path.str().to_owned());
        }
        if mounts.contains_key(name.str()) {
            name.invalid(errors, "must not already exist in volumeMounts");
        }
        if mount_paths.contains(path.str()) {
            path.invalid(errors, "must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            names.insert(name.str().to_owned());
        }
    }
}
