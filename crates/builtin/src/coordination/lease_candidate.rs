//! Those who stand for a lease.

use registry::{Column, Strategy};

use crate::format::text;

pub(crate) struct LeaseCandidate;

impl Strategy for LeaseCandidate {
    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("LeaseName", |candidate, _| text(candidate, &["spec", "leaseName"])),
            Column::new("BinaryVersion", |candidate, _| {
                text(candidate, &["spec", "binaryVersion"])
            }),
            Column::new("EmulationVersion", |candidate, _| {
                text(candidate, &["spec", "emulationVersion"])
            }),
            Column::AGE,
        ]
    }
}
