//! Which CSI drivers a node has.

use registry::{Column, Strategy};

use crate::format::count;

pub(crate) struct CsiNode;

impl Strategy for CsiNode {
    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::integer("Drivers", |node, _| count(node, &["spec", "drivers"])),
            Column::AGE,
        ]
    }
}
