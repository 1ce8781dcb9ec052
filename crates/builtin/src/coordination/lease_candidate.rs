//! Those who stand for a lease.

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::format::text;
use crate::validation::lease;

pub(crate) struct LeaseCandidate;

impl Strategy for LeaseCandidate {
    fn validate(&self, candidate: &Value, errors: &mut FieldErrors) {
        lease::candidate(candidate, None, errors);
    }

    fn validate_update(&self, candidate: &Value, old: &Value, errors: &mut FieldErrors) {
        lease::candidate(candidate, Some(old), errors);
    }

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
