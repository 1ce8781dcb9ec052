//! Resource slices: the devices of a node, or of many.

pub(crate) mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use super::device::default_device;
use crate::conversion::device::slice_to_newest;
use crate::defaulting::SetDefault;
use crate::printer_cells::text;

pub(crate) struct ResourceSlice;

impl Strategy for ResourceSlice {
    fn default(&self, slice: &mut Value) {
        slice.object_at_mut(&["spec"]).each("devices").for_each(default_device);
    }

    fn validate(&self, slice: &Value, errors: &mut FieldErrors) {
        validation::validate(&slice_to_newest(slice.clone()), errors);
    }

    fn validate_update(&self, slice: &Value, old: &Value, errors: &mut FieldErrors) {
        let [slice, old] = [slice, old].map(|slice| slice_to_newest(slice.clone()));
        validation::validate_update(&slice, &old, errors);
    }

    fn warnings(&self, _subresource: &str, slice: &Value, _old: Option<&Value>) -> Vec<String> {
        let driver = slice.str_at(&["spec", "driver"]);
        if driver == driver.to_lowercase() {
            return Vec::new();
        }
        vec![format!(
            "spec.driver: driver names should be lowercase; {} contains uppercase characters",
            meta::field::quote(driver)
        )]
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
