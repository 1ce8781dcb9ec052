//! Config maps.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Cell, Column, Strategy};

use crate::printer_cells::keys;

pub(crate) struct ConfigMap;

impl Strategy for ConfigMap {
    fn validate(&self, map: &Value, errors: &mut FieldErrors) {
        validation::validate(map, errors);
    }

    fn validate_update(&self, map: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(map, old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Data", |map, _| {
                Cell::Integer(keys(map, &["data"]) + keys(map, &["binaryData"]))
            }),
            Column::AGE,
        ]
    }
}
