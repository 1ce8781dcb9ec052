//! Volume attributes classes.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::printer_cells::text;

pub(crate) struct VolumeAttributesClass;

impl Strategy for VolumeAttributesClass {
    fn validate(&self, class: &Value, errors: &mut FieldErrors) {
        validation::validate(class, errors);
    }

    fn validate_update(&self, class: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(class, old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("DriverName", |class, _| text(class, &["driverName"])),
            Column::AGE,
        ]
    }
}
