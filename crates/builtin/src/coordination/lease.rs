//! Leases.

use registry::{Column, Strategy};

use crate::format::text;

pub(crate) struct Lease;

impl Strategy for Lease {
    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Holder", |lease, _| text(lease, &["spec", "holderIdentity"])),
            Column::AGE,
        ]
    }
}
