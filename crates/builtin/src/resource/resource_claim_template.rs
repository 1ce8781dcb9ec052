//! Resource claim templates.

use registry::{Column, Strategy};

pub(crate) struct ResourceClaimTemplate;

impl Strategy for ResourceClaimTemplate {
    fn columns(&self) -> Vec<Column> {
        vec![Column::NAME, Column::AGE]
    }
}
