//! Runtime classes.

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::format::text;
use crate::validation::cluster;

pub(crate) struct RuntimeClass;

impl Strategy for RuntimeClass {
    fn validate(&self, class: &Value, errors: &mut FieldErrors) {
        cluster::runtime_class(class, errors);
    }

    fn validate_update(&self, class: &Value, old: &Value, errors: &mut FieldErrors) {
        cluster::runtime_class_update(class, old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Handler", |class, _| text(class, &["handler"])),
            Column::AGE,
        ]
    }
}
