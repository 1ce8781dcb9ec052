//! Leases.

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::format::text;
use crate::validation::cluster;

pub(crate) struct Lease;

impl Strategy for Lease {
    fn validate(&self, lease: &Value, errors: &mut FieldErrors) {
        cluster::lease(lease, errors);
    }

    fn validate_update(&self, lease: &Value, old: &Value, errors: &mut FieldErrors) {
        cluster::lease_update(lease, old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Holder", |lease, _| text(lease, &["spec", "holderIdentity"])),
            Column::AGE,
        ]
    }
}
