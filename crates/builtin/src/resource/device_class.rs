//! Device classes.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

pub(crate) struct DeviceClass;

impl Strategy for DeviceClass {
    fn validate(&self, class: &Value, errors: &mut FieldErrors) {
        validation::validate(class, errors);
    }

    fn validate_update(&self, class: &Value, _old: &Value, errors: &mut FieldErrors) {
        validation::validate(class, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![Column::NAME, Column::AGE]
    }
}
