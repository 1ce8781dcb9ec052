//! Leases.

pub(crate) mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::printer_cells::text;

pub(crate) struct Lease;

impl Strategy for Lease {
    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        validation::validate(object, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Holder", |lease, _| text(lease, &["spec", "holderIdentity"])),
            Column::AGE,
        ]
    }
}
