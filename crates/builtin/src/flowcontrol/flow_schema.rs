//! Flow schemas.

pub(crate) mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::defaulting::SetDefault;
use crate::printer_cells::{NONE, condition, number, text, text_or};

pub(crate) struct FlowSchema;

impl Strategy for FlowSchema {
    fn default(&self, schema: &mut Value) {
        schema.object_at_mut(&["spec"]).set_default_if_empty("matchingPrecedence", 1000i64);
    }

    fn validate(&self, schema: &Value, errors: &mut FieldErrors) {
        validation::validate(schema, errors);
    }

    fn validate_update(&self, schema: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(schema, old, errors);
    }

    fn row_order(&self) -> Option<fn(&Value) -> i64> {
        Some(|schema| schema.i64_at(&["spec", "matchingPrecedence"]).unwrap_or_default())
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("PriorityLevel", |s, _| {
                text(s, &["spec", "priorityLevelConfiguration", "name"])
            }),
            Column::new("MatchingPrecedence", |schema, _| {
                number(schema, &["spec", "matchingPrecedence"])
            }),
            Column::new("DistinguisherMethod", |schema, _| {
                text_or(schema, &["spec", "distinguisherMethod", "type"], NONE)
            }),
            Column::AGE,
            // Whether the priority level is missing that the schema names.
            Column::new("MissingPL", |schema, _| {
                condition(schema, "Dangling")
                    .map_or("?".into(), |dangling| text(dangling, &["status"]))
            }),
        ]
    }
}
