//! Priority levels.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Cell, Column, Strategy};

use crate::defaulting::SetDefault;
use crate::printer_cells::{NONE, number, text};

pub(crate) struct PriorityLevelConfiguration;

impl Strategy for PriorityLevelConfiguration {
    fn default(&self, level: &mut Value) {
        let spec = level.object_at_mut(&["spec"]);
        if let Some(exempt) = spec.given("exempt") {
            exempt.set_default("nominalConcurrencyShares", 0i64);
            exempt.set_default("lendablePercent", 0i64);
        }
        if let Some(limited) = spec.given("limited") {
            limited.set_default("nominalConcurrencyShares", 30i64);
            limited.set_default("lendablePercent", 0i64);
            if let Some(queuing) = limited.part("limitResponse").given("queuing") {
                queuing.set_default_if_empty("handSize", 8i64);
                queuing.set_default_if_empty("queues", 64i64);
                queuing.set_default_if_empty("queueLengthLimit", 50i64);
            }
        }
    }

    fn validate(&self, level: &Value, errors: &mut FieldErrors) {
        validation::validate(level, errors);
    }

    fn validate_update(&self, level: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(level, old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Type", |level, _| text(level, &["spec", "type"])),
            Column::new("NominalConcurrencyShares", |level, _| shares(level)),
            Column::new("Queues", |level, _| queuing(level, "queues")),
            Column::new("HandSize", |level, _| queuing(level, "handSize")),
            Column::new("QueueLengthLimit", |level, _| queuing(level, "queueLengthLimit")),
            Column::AGE,
        ]
    }
}

fn shares(level: &Value) -> Cell {
    match level.at(&["spec", "limited"]).filter(|limited| !limited.is_null()) {
        Some(limited) => number(limited, &["nominalConcurrencyShares"]),
        None => NONE.into(),
    }
}

/// Of a level that queues what it cannot serve at once.
fn queuing(level: &Value, field: &str) -> Cell {
    let queuing = level.at(&["spec", "limited", "limitResponse", "queuing"]);
    match queuing.filter(|queuing| !queuing.is_null()) {
        Some(queuing) => number(queuing, &[field]),
        None => NONE.into(),
    }
}
