//! Resource slices: the devices of a node, or of many.

use registry::{Column, Strategy};

use crate::format::text;

pub(crate) struct ResourceSlice;

impl Strategy for ResourceSlice {
    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Node", |slice, _| text(slice, &["spec", "nodeName"])),
            Column::new("Driver", |slice, _| text(slice, &["spec", "driver"])),
            Column::new("Pool", |slice, _| text(slice, &["spec", "pool", "name"])),
            Column::AGE,
        ]
    }
}
