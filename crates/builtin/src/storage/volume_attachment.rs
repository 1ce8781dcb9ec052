//! Volume attachments.

use registry::{Column, Strategy};

use crate::format::{boolean, flag, text};

pub(crate) struct VolumeAttachment;

impl Strategy for VolumeAttachment {
    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column {
                format: "name",
                ..Column::new("Attacher", |attachment, _| text(attachment, &["spec", "attacher"]))
            },
            Column::new("PV", |it, _| text(it, &["spec", "source", "persistentVolumeName"])),
            Column::new("Node", |attachment, _| text(attachment, &["spec", "nodeName"])),
            boolean("Attached", |attachment, _| flag(attachment, &["status", "attached"])),
            Column::AGE,
        ]
    }
}
