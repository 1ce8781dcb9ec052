//! Whether an object may stand: one file per kind or family, called from the kinds' strategies.
//! Messages are word for word those of kube-apiserver, because people and tools read them.
//!
//! Defaults are already there, so a field that always gets one is never called missing here.

pub(crate) mod admission;
pub(crate) mod api_service;
pub(crate) mod autoscaler;
pub(crate) mod cluster;
mod cron;
mod cursor;
pub(crate) mod data;
mod duration;
pub(crate) mod endpoints;
pub(crate) mod event;
pub(crate) mod flowcontrol;
mod ip;
pub(crate) mod jobs;
mod names;
pub(crate) mod networking;
pub(crate) mod node;
pub(crate) mod persistent_volume;
pub(crate) mod persistent_volume_claim;
pub(crate) mod pod;
mod pod_spec;
mod pod_status;
pub(crate) mod pod_template;
pub(crate) mod quota;
pub(crate) mod rbac;
pub(crate) mod service;
pub(crate) mod storage;
#[cfg(test)]
mod tests;
mod time_zones;
pub(crate) mod workloads;

use meta::{
    FieldErrors, Value,
    names::{validate_annotations, validate_labels},
};

use self::cursor::Field;
pub(crate) use self::ip::name_is_ip;

/// The metadata of a template for objects other than pods: labels and annotations only.
fn template_meta(metadata: &Field<'_>, errors: &mut FieldErrors) {
    let (labels, annotations) = (metadata.get("labels"), metadata.get("annotations"));
    validate_annotations(annotations.value(), &annotations.path(), errors);
    validate_labels(labels.value(), &labels.path(), errors);
    let names = metadata.value().and_then(Value::as_object).into_iter().flat_map(meta::Map::keys);
    for name in names.filter(|name| !matches!(name.as_str(), "annotations" | "labels")) {
        let field = metadata.get(name);
        if field.is_set() {
            field.forbidden(errors, "cannot be set");
        }
    }
}

/// Counts in a status, none of which may be negative.
fn counts(status: &Field<'_>, names: &[&str], errors: &mut FieldErrors) {
    for name in names {
        status.get(name).non_negative(errors);
    }
}
