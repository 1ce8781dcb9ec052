//! Persistent volumes.

pub(crate) mod validation;

use meta::{FieldErrors, Value, value};
use registry::{Cell, Column, Strategy, WriteContext, keep_all_but_status};

use super::volume_printer_cells::{access_modes, class, phase};
use crate::core::pod_spec::default_host_path;
use crate::defaulting::{SetDefault, round_resources};
use crate::printer_cells::{UNSET, quantity, text, text_or};
use crate::warnings;

pub(crate) struct PersistentVolume;

impl Strategy for PersistentVolume {
    fn default(&self, volume: &mut Value) {
        let volume = volume.object_at_mut(&[]);
        volume.part("status").set_default_if_empty("phase", "Pending");
        let spec = volume.part("spec");
        spec.set_default_if_empty("persistentVolumeReclaimPolicy", "Retain");
        spec.set_default("volumeMode", "Filesystem");
        default_host_path(spec);
        round_resources(spec, &["capacity"]);
    }

    fn prepare_for_create(&self, volume: &mut Value, cx: &WriteContext<'_>) {
        let since = cx.now.to_rfc3339();
        let status = value!({"phase": "Pending", "lastPhaseTransitionTime": (since)});
        volume.set_at(&["status"], status);
    }

    /// When the phase changes is written down, unless the client does that itself.
    fn prepare_for_subresource(
        &self,
        subresource: &str,
        volume: &mut Value,
        old: &Value,
        cx: &WriteContext<'_>,
    ) {
        keep_all_but_status(subresource, volume, old);
        let at = ["status", "lastPhaseTransitionTime"];
        let phase = |volume: &Value| volume.str_at(&["status", "phase"]).to_owned();
        let (given, before) = (volume.at(&at).cloned(), old.at(&at).cloned());
        if phase(volume) != phase(old) {
            if given.is_none() || given == before {
                volume.set_at(&at, cx.now.to_rfc3339());
            }
        } else if let (None, Some(before)) = (given, before) {
            volume.set_at(&at, before);
        }
    }

    fn validate(&self, volume: &Value, errors: &mut FieldErrors) {
        validation::validate(volume, errors);
        validation::mount_options(volume, errors);
    }

    fn validate_update(&self, volume: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(volume, old, errors);
    }

    fn warnings(&self, subresource: &str, volume: &Value, _old: Option<&Value>) -> Vec<String> {
        match subresource {
            "" => warnings::persistent_volume(volume),
            _ => Vec::new(),
        }
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Capacity", |volume, _| {
                quantity(volume, &["spec", "capacity", "storage"]).into()
            }),
            Column::new("Access Modes", |volume, _| {
                access_modes(volume, &["spec", "accessModes"]).into()
            }),
            Column::new("Reclaim Policy", |volume, _| {
                text(volume, &["spec", "persistentVolumeReclaimPolicy"])
            }),
            Column::new("Status", |volume, _| phase(volume)),
            Column::new("Claim", |volume, _| claim(volume)),
            Column::new("StorageClass", |volume, _| class(volume)),
            Column::new("VolumeAttributesClass", |volume, _| {
                text_or(volume, &["spec", "volumeAttributesClassName"], UNSET)
            }),
            Column::new("Reason", |volume, _| text(volume, &["status", "reason"])),
            Column::AGE,
            Column::new("VolumeMode", |volume, _| text_or(volume, &["spec", "volumeMode"], UNSET))
                .wide(),
        ]
    }
}

/// `namespace/name` of the claim that the volume is bound to or reserved for.
fn claim(volume: &Value) -> Cell {
    let Some(claim) = volume.at(&["spec", "claimRef"]).filter(|claim| !claim.is_null()) else {
        return "".into();
    };
    format!("{}/{}", claim.str_at(&["namespace"]), claim.str_at(&["name"])).into()
}
