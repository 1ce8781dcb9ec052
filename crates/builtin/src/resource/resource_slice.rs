//! Resource slices: the devices of a node, or of many.

use meta::Value;
use registry::{Column, Strategy};

use super::device::default_device;
use crate::fill::Fill;
use crate::format::text;

pub(crate) struct ResourceSlice;

impl Strategy for ResourceSlice {
    fn default(&self, slice: &mut Value) {
        slice.object_at_mut(&["spec"]).each("devices").for_each(default_device);
    }

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
