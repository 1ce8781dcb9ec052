//! Workloads.

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::validation::workload_group;

pub(crate) struct Workload;

impl Strategy for Workload {
    fn validate(&self, workload: &Value, errors: &mut FieldErrors) {
        workload_group::workload(workload, None, errors);
    }

    fn validate_update(&self, workload: &Value, old: &Value, errors: &mut FieldErrors) {
        workload_group::workload(workload, Some(old), errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![Column::NAME, Column::AGE]
    }
}
