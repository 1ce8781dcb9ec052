//! LeaseCandidate: a candidate of coordinated leader election.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::printer_cells::text;

pub(crate) struct LeaseCandidate;

impl Strategy for LeaseCandidate {
    fn validate(&self, candidate: &Value, errors: &mut FieldErrors) {
        validation::validate(candidate, None, errors);
    }

    fn validate_update(&self, candidate: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate(candidate, Some(old), errors);
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
