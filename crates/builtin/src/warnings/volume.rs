//! Kinds of volumes that are gone or going, and claims that ask for parts of a byte.

use meta::{Value, field::quote, quantity::Quantity};

use super::node_label::expressions;
use crate::validation::cursor::Field;

/// The sources that no kubelet knows any more: name, name in the warning, since when.
const GONE: [(&str, &str, &str); 9] = [
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

pub(super) fn gone(volume: &Field<'_>, texts: &mut Vec<String>) {
    for (name, shown, text) in GONE {
        if volume.get(name).is_set() {
            texts.push(format!("{}: {text}", volume.get(shown).path()));
        }
    }
}

pub(crate) fn persistent_volume(volume: &Value) -> Vec<String> {
    let root = Field::root(volume);
    let mut texts = Vec::new();
    annotations(&root, &[STORAGE_CLASS, MOUNT_OPTIONS], &mut texts);
    let spec = root.get("spec");
    let reclaim = spec.get("persistentVolumeReclaimPolicy");
    if reclaim.is("Recycle") {
        texts.push(format!(
            "{}: The Recycle reclaim policy is deprecated. Instead, the recommended approach is \
             to use dynamic provisioning.",
            reclaim.path()
        ));
    }
    let affinity = spec.get("nodeAffinity");
    let required = affinity.get("required");
    for term in required.get("nodeSelectorTerms").items() {
        expressions(&term, &mut texts);
    }
    // Compat: upstream says nothing about two kinds that are gone from pods.
    let mut all = Vec::new();
    gone(&spec, &mut all);
    texts.extend(
        all.into_iter()
            .filter(|text| !text.starts_with("spec.flocker") && !text.starts_with("spec.quobyte")),
    );
    texts
}

const STORAGE_CLASS: (&str, &str) = (
    "volume.beta.kubernetes.io/storage-class",
    "deprecated since v1.8; use \"storageClassName\" attribute instead",
);

const MOUNT_OPTIONS: (&str, &str) = (
    "volume.beta.kubernetes.io/mount-options",
    "deprecated since v1.31; use \"mountOptions\" attribute instead",
);

fn annotations(root: &Field<'_>, deprecated: &[(&str, &str)], texts: &mut Vec<String>) {
    let metadata = root.get("metadata");
    let annotations = metadata.get("annotations");
    for (key, text) in deprecated {
        if annotations.key(key).is_set() {
            texts.push(format!("{}: {text}", annotations.key(key).path()));
        }
    }
}

pub(crate) fn claim(claim: &Value) -> Vec<String> {
    let root = Field::root(claim);
    let mut texts = Vec::new();
    annotations(&root, &[STORAGE_CLASS], &mut texts);
    texts.extend(claim_spec("spec", root.value().and_then(|claim| claim.get("spec"))));
    texts
}

/// `path` is that of the spec: upstream doesn't always say where it really is.
pub(crate) fn claim_spec(path: &str, spec: Option<&Value>) -> Vec<String> {
    let mut texts = Vec::new();
    for list in ["requests", "limits"] {
        let value = spec.and_then(|spec| spec.at(&["resources", list, "storage"]));
        texts.extend(fraction(&format!("{path}.resources.{list}[storage]"), value));
    }
    texts
}

/// A part of a byte.
pub(super) fn fraction(path: &str, value: Option<&Value>) -> Option<String> {
    let value = Quantity::from_value(value?).ok()?;
    (value.milli_value() % 1000 != 0).then(|| {
        let value = quote(&value.to_string());
        format!("{path}: fractional byte value {value} is invalid, must be an integer")
    })
}
