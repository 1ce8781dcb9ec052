//! Persistent volumes.

use meta::{
    FieldErrors, Value,
    field::FieldReason,
    names::{is_dns1123_label, is_dns1123_subdomain},
};

use crate::core::persistent_volume_claim::validation::access_modes;
use crate::validation::{
    cursor::Field,
    go_json,
    pod_spec::{basic_resource, node_selector, positive_quantity, volume_sources as sources},
};

pub(crate) fn validate(volume: &Value, errors: &mut FieldErrors) {
    let root = Field::root(volume);
    spec(&root.get("spec"), root.str_at(&["metadata", "name"]), errors);
}

/// A volume that is described where it is attached: it is there already, so all that leads to one
/// is out of place.
pub(crate) fn inline(spec: &Field<'_>, errors: &mut FieldErrors) {
    let why = "may not be specified in the context of inline volumes";
    let forbid = |name: &str, errors: &mut FieldErrors| {
        if !spec.get(name).is_empty() {
            spec.get(name).forbidden(errors, why);
        }
    };
    if spec.get("claimRef").is_set() {
        spec.get("claimRef").forbidden(errors, why);
    }
    forbid("capacity", errors);
    if !spec.get("csi").is_set() {
        let why = "has to be specified in the context of inline volumes";
        spec.get("csi").required(errors, why);
    }
    let modes = spec.get("accessModes");
    modes.require(errors);
    access_modes(&modes, errors);
    let policy = spec.get("persistentVolumeReclaimPolicy");
    if !policy.is_empty() && !policy.is("Retain") {
        policy.forbidden(errors, "may only be Retain in the context of inline volumes");
    }
    if spec.get("nodeAffinity").is_set() {
        spec.get("nodeAffinity").forbidden(errors, why);
    }
    source(spec, "", errors);
    forbid("storageClassName", errors);
    let mode = spec.get("volumeMode");
    if mode.is_set() && !mode.is("Filesystem") {
        let why =
            "may not specify volumeMode other than Filesystem in the context of inline volumes";
        mode.forbidden(errors, why);
    }
}

fn spec(spec: &Field<'_>, volume: &str, errors: &mut FieldErrors) {
    let modes = spec.get("accessModes");
    modes.require(errors);
    access_modes(&modes, errors);
    capacity(&spec.get("capacity"), errors);
    let policies = ["Delete", "Recycle", "Retain"];
    spec.get("persistentVolumeReclaimPolicy").one_of_or_default(errors, &policies);
    let affinity = spec.get("nodeAffinity");
    if affinity.is_set() {
        if affinity.get("required").is_set() {
            node_selector(&affinity.get("required"), errors);
        } else {
            affinity.get("required").required(errors, "must specify required node constraints");
        }
    }
    source(spec, volume, errors);
    let class = spec.get("storageClassName");
    let is_root = spec.value_at(&["hostPath", "path"]).and_then(Value::as_str).is_some_and(is_root);
    if is_root && spec.get("persistentVolumeReclaimPolicy").is("Recycle") {
        let why = "may not be 'recycle' for a hostPath mount of '/'";
        spec.get("persistentVolumeReclaimPolicy").forbidden(errors, why);
    }
    class.rule_if_filled(errors, is_dns1123_subdomain);
    spec.get("volumeMode").one_of(errors, &["Block", "Filesystem"]);
    attributes_class(spec, errors);
}

fn attributes_class(spec: &Field<'_>, errors: &mut FieldErrors) {
    let attributes = spec.get("volumeAttributesClassName");
    if attributes.is_set() {
        if attributes.is_empty() {
            attributes.required(errors, "an empty string is disallowed");
        } else {
            attributes.rule(errors, is_dns1123_subdomain);
        }
        if !spec.get("csi").is_set() {
            let why = "has to be specified when using volumeAttributesClassName";
            spec.get("csi").required(errors, why);
        }
    }
}

/// Whether a path leads to `/`, however it is written.
fn is_root(path: &str) -> bool {
    let mut depth = 0usize;
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => depth = depth.saturating_sub(1),
            _ => depth += 1,
        }
    }
    path.starts_with('/') && depth == 0
}

fn capacity(capacity: &Field<'_>, errors: &mut FieldErrors) {
    capacity.require(errors);
    if capacity.len() > 1 || !capacity.key("storage").is_set() {
        let shown = capacity.value().map_or_else(|| "null".to_owned(), meta::json::to_string);
        let message = format!("Unsupported value: {shown}: supported values: \"storage\"");
        errors.push(FieldReason::NotSupported, capacity.path(), message);
    }
    for (_, amount) in capacity.entries() {
        basic_resource(&amount, errors);
        positive_quantity(&amount, errors);
    }
}

type Check = fn(&Field<'_>, &mut FieldErrors);

/// Name, name in messages and check of each source, in the order of upstream.
const SOURCES: &[(&str, &str, Check)] = &[
    ("hostPath", "hostPath", sources::host_path),
    ("gcePersistentDisk", "persistentDisk", sources::gce_disk),
    ("awsElasticBlockStore", "awsElasticBlockStore", sources::aws_disk),
    ("glusterfs", "glusterfs", glusterfs),
    ("flocker", "flocker", sources::flocker),
    ("nfs", "nfs", sources::nfs),
    ("rbd", "rbd", sources::rbd),
    ("quobyte", "quobyte", sources::quobyte),
    ("cephfs", "cephfs", sources::ceph_fs),
    ("iscsi", "iscsi", iscsi),
    ("cinder", "cinder", cinder),
    ("fc", "fc", sources::fc),
    ("flexVolume", "flexVolume", sources::flex),
    ("azureFile", "azureFile", azure_file),
    ("vsphereVolume", "vsphereVolume", sources::vsphere),
    ("photonPersistentDisk", "photonPersistentDisk", sources::photon),
    ("portworxVolume", "portworxVolume", sources::portworx),
    ("azureDisk", "azureDisk", sources::azure_disk),
    ("scaleIO", "scaleIO", sources::scale_io),
    ("local", "local", local),
    ("storageos", "storageos", storage_os),
    ("csi", "csi", csi),
];

fn source(spec: &Field<'_>, volume: &str, errors: &mut FieldErrors) {
    let mut found = false;
    for (name, shown, check) in SOURCES {
        let source = spec.get(name);
        if !source.is_set() {
            continue;
        }
        if found && *name != "flexVolume" {
            let shown = if *name == "cephfs" { "cephFS" } else { name };
            spec.get(shown).forbidden(errors, "may not specify more than 1 volume type");
            continue;
        }
        found = true;
        if *name == "iscsi" {
            iscsi_length(&source, volume, errors);
        }
        check(&source.named(shown), errors);
        if *name == "local" && !spec.get("nodeAffinity").is_set() {
            spec.get("nodeAffinity").required(errors, "Local volume requires node affinity");
        }
    }
    if !found {
        spec.required(errors, "must specify a volume type");
    }
}

fn glusterfs(source: &Field<'_>, errors: &mut FieldErrors) {
    sources::glusterfs(source, errors);
    let namespace = source.get("endpointsNamespace");
    if namespace.is_set() {
        if namespace.is_empty() {
            let why = "if the endpointnamespace is set, it must be a valid namespace name";
            namespace.invalid(errors, why);
        } else {
            namespace.rule(errors, is_dns1123_label);
        }
    }
}

fn iscsi_length(source: &Field<'_>, volume: &str, errors: &mut FieldErrors) {
    let portal = source.get("targetPortal");
    if source.get("initiatorName").is_set() && volume.len() + 1 + portal.len() > 64 {
        let why = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters \
                   if iscsi.initiatorName is specified.";
        portal.named("targetportal").invalid(errors, why);
    }
}

fn iscsi(source: &Field<'_>, errors: &mut FieldErrors) {
    sources::iscsi_of_volume(source, errors);
    sources::secret_ref(source, &["name"], errors);
    sources::iscsi_initiator_of_volume(source, errors);
}

fn cinder(source: &Field<'_>, errors: &mut FieldErrors) {
    source.get("volumeID").require(errors);
    sources::secret_ref(source, &["name", "namespace"], errors);
}

fn azure_file(source: &Field<'_>, errors: &mut FieldErrors) {
    sources::azure_file(source, errors);
    if source.get("secretNamespace").is_set() {
        source.get("secretNamespace").require(errors);
    }
}

fn local(source: &Field<'_>, errors: &mut FieldErrors) {
    if source.get("path").require(errors) {
        sources::no_backsteps(&source.get("path"), errors);
    }
}

fn storage_os(source: &Field<'_>, errors: &mut FieldErrors) {
    sources::storage_os_volume(source, errors);
    sources::secret_ref(source, &["name", "namespace"], errors);
}

fn csi(source: &Field<'_>, errors: &mut FieldErrors) {
    sources::csi_driver_name(&source.get("driver"), errors);
    source.get("volumeHandle").require(errors);
    for name in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        let reference = source.get(name);
        if reference.is_set() {
            reference.get("name").require_rule(errors, is_dns1123_subdomain);
            reference.get("namespace").require_rule(errors, is_dns1123_label);
        }
    }
}

/// Volumes that may have mount options in an annotation.
const WITH_MOUNT_OPTIONS: [&str; 13] = [
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "cinder",
    "cephfs",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
];

const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

pub(crate) fn mount_options(volume: &Value, errors: &mut FieldErrors) {
    let root = Field::root(volume);
    let spec = root.get("spec");
    if WITH_MOUNT_OPTIONS.iter().any(|source| spec.get(source).is_set()) {
        return;
    }
    let metadata = root.get("metadata");
    let annotations = metadata.get("annotations");
    if annotations.value_at(&[MOUNT_OPTIONS]).is_some() {
        let why = "may not specify mount options for this volume type";
        annotations.get(MOUNT_OPTIONS).forbidden(errors, why);
    }
}

pub(crate) fn validate_update(volume: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(volume, errors);
    mount_options(volume, errors);
    // Compat: upstream does it twice, and lists the causes twice.
    validate(volume, errors);
    crate::validation::ratcheting::ratchet(old, validate, errors);
    let root = Field::root(volume);
    let spec = root.get("spec");
    let secret = ["spec", "csi", "controllerExpandSecretRef"];
    let only_source = |object: &Value, other: &Value| -> Vec<Option<Value>> {
        SOURCES
            .iter()
            .map(|(name, _, _)| {
                let mut source = object.at(&["spec", name]).cloned();
                // A secret for expanding may be added later.
                let may_add = old.at(&secret).is_none() && other.at(&["spec", "csi"]).is_some();
                if let Some(source) = source.as_mut().filter(|_| *name == "csi" && may_add) {
                    source.remove_at(&["controllerExpandSecretRef"]);
                }
                source
            })
            .collect()
    };
    if only_source(volume, old) != only_source(old, volume) {
        let spec_of = |object: &Value| object.get("spec").cloned().unwrap_or_default();
        let (before, mut now) = (spec_of(old), spec_of(volume));
        if before.at(&["csi", "controllerExpandSecretRef"]).is_none() {
            now.remove_at(&["csi", "controllerExpandSecretRef"]);
        }
        let diff = go_json::diff("PersistentVolumeSource", &before, &now);
        let why = format!("spec.persistentvolumesource is immutable after creation\n{diff}");
        spec.get("persistentvolumesource").forbidden(errors, &why);
    }
    // Compat: upstream leaves `spec` out of these paths.
    let mode = root.get("volumeMode").with(spec.value_at(&["volumeMode"]));
    let old_root = Field::root(old);
    let old_spec = old_root.get("spec");
    mode.immutable(&old_spec.get("volumeMode"), errors);
    let affinity = root.get("nodeAffinity").with(spec.value_at(&["nodeAffinity"]));
    let before = old_spec.get("nodeAffinity");
    let masked = with_old_labels(affinity.value(), before.value());
    if before.is_set() && masked.as_ref() != before.value() {
        let why = "field is immutable, except for updating from beta label to GA";
        let shown = go_json::compact("*VolumeNodeAffinity", affinity.value());
        affinity.invalid_shown(errors, &shown, why);
    }
    let class = spec.get("volumeAttributesClassName");
    if old_spec.get("volumeAttributesClassName").is_set() && !class.is_set() {
        class.forbidden(errors, "update from non-nil value to nil is forbidden");
    }
}

/// A node affinity with the labels of the old one, where those have become GA.
fn with_old_labels(affinity: Option<&Value>, old: Option<&Value>) -> Option<Value> {
    let mut affinity = affinity?.clone();
    let terms = |value: &Value| value.items_at(&["required", "nodeSelectorTerms"]).to_vec();
    let old_terms = old.map(terms).unwrap_or_default();
    let new_terms = affinity.at_mut(&["required", "nodeSelectorTerms"]);
    let new_terms = new_terms.and_then(Value::as_array_mut).into_iter().flatten();
    for (term, old_term) in new_terms.zip(&old_terms) {
        for list in ["matchExpressions", "matchFields"] {
            let requirements = term.get_mut(list).and_then(Value::as_array_mut);
            let requirements = requirements.into_iter().flatten();
            for (requirement, old) in requirements.zip(old_term.items_at(&[list])) {
                let old_key = old.str_at(&["key"]);
                if requirement.str_at(&["key"]) == ga_label(old_key) {
                    requirement.set_at(&["key"], old_key);
                }
            }
        }
    }
    Some(affinity)
}

/// The label that has replaced another.
///
/// Compat: none is an empty one, so that a key may also be removed, as in kube-apiserver.
fn ga_label(label: &str) -> &'static str {
    match label {
        "failure-domain.beta.kubernetes.io/zone" => "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region" => "topology.kubernetes.io/region",
        "beta.kubernetes.io/os" => "kubernetes.io/os",
        "beta.kubernetes.io/arch" => "kubernetes.io/arch",
        "beta.kubernetes.io/instance-type" => "node.kubernetes.io/instance-type",
        _ => "",
    }
}
