//! Workloads.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

pub(crate) struct Workload;

impl Strategy for Workload {
    fn validate(&self, workload: &Value, errors: &mut FieldErrors) {
        validation::validate(workload, None, errors);
    }

    fn validate_update(&self, workload: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate(workload, Some(old), errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![Column::NAME, Column::AGE]
    }
}
