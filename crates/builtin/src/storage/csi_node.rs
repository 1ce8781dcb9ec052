//! Which CSI drivers a node has.

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::format::count;
use crate::validation::storage;

pub(crate) struct CsiNode;

impl Strategy for CsiNode {
    fn validate(&self, node: &Value, errors: &mut FieldErrors) {
        storage::csi_node(node, errors);
    }

    fn validate_update(&self, node: &Value, old: &Value, errors: &mut FieldErrors) {
        storage::csi_node_update(node, old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::integer("Drivers", |node, _| count(node, &["spec", "drivers"])),
            Column::AGE,
        ]
    }
}
