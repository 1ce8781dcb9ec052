//! The ranges that services get their addresses from.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::printer_cells::joined;

pub(crate) struct ServiceCidr;

impl Strategy for ServiceCidr {
    fn validate(&self, cidr: &Value, errors: &mut FieldErrors) {
        validation::validate(cidr, errors);
    }

    fn validate_update(&self, cidr: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(cidr, old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("CIDRs", |range, _| joined(range, &["spec", "cidrs"]).into()),
            Column::AGE,
        ]
    }
}
