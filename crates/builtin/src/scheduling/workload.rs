//! Workloads.

use registry::{Column, Strategy};

pub(crate) struct Workload;

impl Strategy for Workload {
    fn columns(&self) -> Vec<Column> {
        vec![Column::NAME, Column::AGE]
    }
}
