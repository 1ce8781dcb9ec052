//! What volumes and claims show alike.

use meta::Value;
use registry::Cell;

use crate::printer_cells::{is_being_deleted, text};

/// Older than `spec.storageClassName`, and still the one that counts where it is present.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

const ACCESS_MODES: [(&str, &str); 4] = [
    ("ReadWriteOnce", "RWO"),
    ("ReadOnlyMany", "ROX"),
    ("ReadWriteMany", "RWX"),
    ("ReadWriteOncePod", "RWOP"),
];

/// The short names of access modes, each once, in the order of the table.
pub(crate) fn access_modes(object: &Value, path: &[&str]) -> String {
    let modes = object.items_at(path);
    let present =
        ACCESS_MODES.iter().filter(|(mode, _)| modes.iter().any(|m| m.as_str() == Some(*mode)));
    let short: Vec<&str> = present.map(|(_, short)| *short).collect();
    short.join(",")
}

pub(crate) fn phase(object: &Value) -> Cell {
    if is_being_deleted(object) { "Terminating".into() } else { text(object, &["status", "phase"]) }
}

pub(crate) fn class(object: &Value) -> Cell {
    match object.at(&["metadata", "annotations", CLASS_ANNOTATION]).and_then(Value::as_str) {
        Some(class) => class.into(),
        None => text(object, &["spec", "storageClassName"]),
    }
}
