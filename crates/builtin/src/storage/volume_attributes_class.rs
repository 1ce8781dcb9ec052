//! Volume attributes classes.

use registry::{Column, Strategy};

use crate::format::text;

pub(crate) struct VolumeAttributesClass;

impl Strategy for VolumeAttributesClass {
    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("DriverName", |class, _| text(class, &["driverName"])),
            Column::AGE,
        ]
    }
}
