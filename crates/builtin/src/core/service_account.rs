//! Service accounts.

pub(crate) mod token;

use registry::{Column, Strategy};

pub(crate) struct ServiceAccount;

impl Strategy for ServiceAccount {
    fn columns(&self) -> Vec<Column> {
        vec![Column::NAME, Column::AGE]
    }
}
