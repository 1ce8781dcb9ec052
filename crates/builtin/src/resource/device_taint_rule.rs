//! Device taint rules.

use meta::{FieldErrors, Value, time::Time};
use registry::{Cell, Column, Strategy, since};

use super::device::default_taint;
use super::resource_slice::validation::taint_rule;
use crate::printer_cells::text;
use crate::validation::{conditions, cursor::Field};

pub(crate) struct DeviceTaintRule;

impl Strategy for DeviceTaintRule {
    fn default(&self, rule: &mut Value) {
        default_taint(rule.object_at_mut(&["spec", "taint"]));
    }

    fn validate(&self, rule: &Value, errors: &mut FieldErrors) {
        taint_rule(rule, None, errors);
    }

    fn validate_update(&self, rule: &Value, old: &Value, errors: &mut FieldErrors) {
        taint_rule(rule, Some(old), errors);
    }

    fn validate_subresource(
        &self,
        _subresource: &str,
        rule: &Value,
        _old: &Value,
        errors: &mut FieldErrors,
    ) {
        let root = Field::root(rule);
        let status = root.get("status");
        conditions(&status.get("conditions"), errors);
        if status.get("conditions").len() > 8 {
            errors.too_many(status.get("conditions").path(), status.get("conditions").len(), 8);
        }
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
