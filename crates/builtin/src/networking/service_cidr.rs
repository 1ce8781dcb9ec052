//! The ranges that services get their addresses from.

use registry::{Column, Strategy};

use crate::format::joined;

pub(crate) struct ServiceCidr;

impl Strategy for ServiceCidr {
    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("CIDRs", |range, _| joined(range, &["spec", "cidrs"]).into()),
            Column::AGE,
        ]
    }
}
