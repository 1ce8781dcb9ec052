//! Device taint rules.

mod validation;

use meta::{FieldErrors, Value, time::Time};
use registry::{Cell, Column, Strategy, since};

use super::device::default_taint;
use crate::printer_cells::text;

pub(crate) struct DeviceTaintRule;

impl Strategy for DeviceTaintRule {
    fn default(&self, rule: &mut Value) {
        default_taint(rule.object_at_mut(&["spec", "taint"]));
    }

    fn validate(&self, rule: &Value, errors: &mut FieldErrors) {
        validation::validate(rule, None, errors);
    }

    fn validate_update(&self, rule: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate(rule, Some(old), errors);
    }

    fn validate_subresource(
        &self,
        _subresource: &str,
        rule: &Value,
        _old: &Value,
        errors: &mut FieldErrors,
    ) {
        validation::validate_status(rule, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Key", |rule, _| text(rule, &["spec", "taint", "key"])),
            Column::new("Value", |rule, _| text(rule, &["spec", "taint", "value"])),
            Column::new("Effect", |rule, _| text(rule, &["spec", "taint", "effect"])),
            Column::new("TimeAdded", time_added),
            Column::AGE,
        ]
    }
}

fn time_added(rule: &Value, now: Time) -> Cell {
    match rule.str_at(&["spec", "taint", "timeAdded"]) {
        "" => "".into(),
        time => since(time, now),
    }
}
