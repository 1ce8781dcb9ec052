//! Config maps.

use meta::{FieldErrors, Value};
use registry::{Cell, Column, Strategy};

use crate::format::keys;
use crate::validation::data;

pub(crate) struct ConfigMap;

impl Strategy for ConfigMap {
    fn validate(&self, map: &Value, errors: &mut FieldErrors) {
        data::config_map(map, errors);
    }

    fn validate_update(&self, map: &Value, old: &Value, errors: &mut FieldErrors) {
        data::config_map_update(map, old, errors);
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
