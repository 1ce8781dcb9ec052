//! Which CSI drivers a node has.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::printer_cells::count;

pub(crate) struct CsiNode;

impl Strategy for CsiNode {
    fn validate(&self, node: &Value, errors: &mut FieldErrors) {
        validation::validate(node, errors);
    }

    fn validate_update(&self, node: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(node, old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::integer("Drivers", |node, _| count(node, &["spec", "drivers"])),
            Column::AGE,
        ]
    }
}
