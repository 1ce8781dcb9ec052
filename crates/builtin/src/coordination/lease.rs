//! Leases.

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::format::text;
use crate::validation::lease;

pub(crate) struct Lease;

impl Strategy for Lease {
    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        lease::lease(object, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Holder", |lease, _| text(lease, &["spec", "holderIdentity"])),
            Column::AGE,
        ]
    }
}
