//! Volume attributes classes.

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::format::text;
use crate::validation::storage;

pub(crate) struct VolumeAttributesClass;

impl Strategy for VolumeAttributesClass {
    fn validate(&self, class: &Value, errors: &mut FieldErrors) {
        storage::attributes_class(class, errors);
    }

    fn validate_update(&self, class: &Value, old: &Value, errors: &mut FieldErrors) {
        storage::attributes_class_update(class, old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("DriverName", |class, _| text(class, &["driverName"])),
            Column::AGE,
        ]
    }
}
