//! Priority classes.

pub(crate) mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy, WriteContext};

use crate::defaulting::SetDefault;
use crate::printer_cells::{boolean, flag, number, text};

pub(crate) struct PriorityClass;

impl Strategy for PriorityClass {
    fn default(&self, class: &mut Value) {
        class.object_at_mut(&[]).set_default("preemptionPolicy", "PreemptLowerPriority");
    }

    fn prepare_for_create(&self, class: &mut Value, _cx: &WriteContext<'_>) {
        // It stays so, because nothing that counts may change.
        class.set_at(&["metadata", "generation"], 1i64);
    }

    fn validate(&self, class: &Value, errors: &mut FieldErrors) {
        validation::validate(class, errors);
    }

    fn validate_update(&self, class: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(class, old, errors);
    }

    fn refuses_deletion(&self, name: &str) -> Option<&'static str> {
        validation::system_priority(name)
            .map(|_| "this is a system priority class and cannot be deleted")
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
