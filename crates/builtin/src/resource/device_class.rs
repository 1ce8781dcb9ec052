//! Device classes.

use registry::{Column, Strategy};

pub(crate) struct DeviceClass;

impl Strategy for DeviceClass {
    fn columns(&self) -> Vec<Column> {
        vec![Column::NAME, Column::AGE]
    }
}
