//! Pod disruption budgets.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::printer_cells::number;

pub(crate) struct PodDisruptionBudget;

impl Strategy for PodDisruptionBudget {
    fn validate(&self, budget: &Value, errors: &mut FieldErrors) {
        validation::validate(budget, errors);
    }

    fn validate_update(&self, budget: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(budget, old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Min Available", |budget, _| int_or_percent(budget, "minAvailable").into()),
            Column::new("Max Unavailable", |budget, _| {
                int_or_percent(budget, "maxUnavailable").into()
            }),
            Column::integer("Allowed Disruptions", |b, _| {
                number(b, &["status", "disruptionsAllowed"])
            }),
            Column::AGE,
        ]
    }
}

fn int_or_percent(budget: &Value, field: &str) -> String {
    match budget.at(&["spec", field]) {
        Some(Value::String(percent)) => percent.to_string(),
        Some(number) if !number.is_null() => number.as_i64().unwrap_or_default().to_string(),
        _ => "N/A".to_owned(),
    }
}
