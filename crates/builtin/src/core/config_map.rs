//! Config maps.

use registry::{Cell, Column, Strategy};

use crate::format::keys;

pub(crate) struct ConfigMap;

impl Strategy for ConfigMap {
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
