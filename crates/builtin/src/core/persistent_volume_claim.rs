//! Persistent volume claims. What the volume offers is shown once there is a volume.

pub(crate) mod validation;

use meta::{FieldErrors, Map, Value, time::Time, value};
use registry::{Cell, Column, Strategy, WriteContext};

use super::volume_printer_cells::{access_modes, class, phase};
use crate::defaulting::{SetDefault, round_resources};
use crate::printer_cells::{UNSET, quantity, text, text_or};
use crate::warnings;

pub(crate) struct PersistentVolumeClaim;

impl Strategy for PersistentVolumeClaim {
    fn default(&self, claim: &mut Value) {
        default_claim(claim.object_at_mut(&[]));
    }

    fn prepare_for_create(&self, claim: &mut Value, _cx: &WriteContext<'_>) {
        claim.set_at(&["status"], value!({}));
        normalize_data_sources(claim, None);
    }

    fn prepare_for_update(&self, claim: &mut Value, old: &Value, _cx: &WriteContext<'_>) {
        normalize_data_sources(claim, Some(old));
    }

    fn validate(&self, claim: &Value, errors: &mut FieldErrors) {
        validation::validate(claim, errors);
    }

    fn validate_update(&self, claim: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(claim, old, errors);
    }

    fn warnings(&self, subresource: &str, claim: &Value, _old: Option<&Value>) -> Vec<String> {
        match subresource {
            "" => warnings::claim(claim),
            _ => Vec::new(),
        }
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Status", |claim, _| phase(claim)),
            Column::new("Volume", |claim, _| text(claim, &["spec", "volumeName"])),
            Column::new("Capacity", capacity),
            Column::new("Access Modes", modes),
            Column::new("StorageClass", |claim, _| class(claim)),
            Column::new("VolumeAttributesClass", |claim, _| {
                text_or(claim, &["spec", "volumeAttributesClassName"], UNSET)
            }),
            Column::AGE,
            Column::new("VolumeMode", |claim, _| text_or(claim, &["spec", "volumeMode"], UNSET))
                .wide(),
        ]
    }
}

/// Copies `dataSource` to `dataSourceRef` or back, for clients that know only one of them. A source of a
/// kind that `dataSource` never supported is dropped.
fn normalize_data_sources(claim: &mut Value, old: Option<&Value>) {
    let (source, reference) = (["spec", "dataSource"], ["spec", "dataSourceRef"]);
    let is_old_kind = matches!(
        (
            claim.str_at(&["spec", "dataSource", "apiGroup"]),
            claim.str_at(&["spec", "dataSource", "kind"])
        ),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    );
    let had_one = old.is_some_and(|old| old.at(&source).is_some());
    if !had_one && !is_old_kind && claim.at(&reference).is_none() {
        claim.remove_at(&source);
    }
    match (claim.at(&source).cloned(), claim.at(&reference).cloned()) {
        (Some(given), None) => claim.set_at(&reference, given),
        (None, Some(mut given)) if given.str_at(&["namespace"]).is_empty() => {
            given.remove_at(&["namespace"]);
            claim.set_at(&source, given);
        }
        _ => {}
    }
}

/// A claim, or the template of one in a stateful set.
pub(crate) fn default_claim(claim: &mut Map) {
    default_claim_spec(claim.part("spec"));
    let status = claim.part("status");
    status.set_default_if_empty("phase", "Pending");
    round_resources(status, &["capacity", "allocatedResources"]);
}

/// What is asked for, also by a volume that lives as long as its pod.
pub(crate) fn default_claim_spec(spec: &mut Map) {
    spec.set_default("volumeMode", "Filesystem");
    if let Some(resources) = spec.given("resources") {
        round_resources(resources, &["limits", "requests"]);
    }
}

fn has_volume(claim: &Value) -> bool {
    !claim.str_at(&["spec", "volumeName"]).is_empty()
}

fn capacity(claim: &Value, _now: Time) -> Cell {
    let capacity =
        if has_volume(claim) { quantity(claim, &["status", "capacity", "storage"]) } else { "" };
    capacity.into()
}

fn modes(claim: &Value, _now: Time) -> Cell {
    if has_volume(claim) {
        access_modes(claim, &["status", "accessModes"]).into()
    } else {
        "".into()
    }
}
