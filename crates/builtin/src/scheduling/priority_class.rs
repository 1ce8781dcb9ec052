//! Priority classes.

use meta::Value;
use registry::{Column, Strategy};

use crate::fill::Fill;
use crate::format::{boolean, flag, number, text};

pub(crate) struct PriorityClass;

impl Strategy for PriorityClass {
    fn default(&self, class: &mut Value) {
        class.object_at_mut(&[]).fill("preemptionPolicy", "PreemptLowerPriority");
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::integer("Value", |class, _| number(class, &["value"])),
            boolean("Global-Default", |class, _| flag(class, &["globalDefault"])),
            Column::AGE,
            Column::new("PreemptionPolicy", |class, _| text(class, &["preemptionPolicy"])),
        ]
    }
}
