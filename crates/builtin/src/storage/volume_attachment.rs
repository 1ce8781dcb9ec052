//! Volume attachments.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::core::pod_spec::default_host_path;
use crate::defaulting::{SetDefault, round_resources};
use crate::printer_cells::{boolean, flag, text};

pub(crate) struct VolumeAttachment;

impl Strategy for VolumeAttachment {
    fn default(&self, attachment: &mut Value) {
        let source = attachment.object_at_mut(&["spec", "source"]);
        if let Some(volume) = source.given("inlineVolumeSpec") {
            default_host_path(volume);
            round_resources(volume, &["capacity"]);
        }
    }

    fn validate(&self, attachment: &Value, errors: &mut FieldErrors) {
        validation::validate(attachment, errors);
    }

    fn validate_update(&self, attachment: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(attachment, old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column {
                format: "name".into(),
                ..Column::new("Attacher", |attachment, _| text(attachment, &["spec", "attacher"]))
            },
            Column::new("PV", |it, _| text(it, &["spec", "source", "persistentVolumeName"])),
            Column::new("Node", |attachment, _| text(attachment, &["spec", "nodeName"])),
            boolean("Attached", |attachment, _| flag(attachment, &["status", "attached"])),
            Column::AGE,
        ]
    }
}
