//! Pod groups: pods that are scheduled together.

pub(crate) mod validation;

use meta::{FieldErrors, Value};
use registry::{Cell, Column, Strategy};

use crate::printer_cells::{NONE, text};

pub(crate) struct PodGroup;

impl Strategy for PodGroup {
    fn validate(&self, group: &Value, errors: &mut FieldErrors) {
        validation::validate(group, None, errors);
    }

    fn validate_update(&self, group: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate(group, Some(old), errors);
    }

    fn validate_subresource(
        &self,
        _subresource: &str,
        group: &Value,
        _old: &Value,
        errors: &mut FieldErrors,
    ) {
        validation::validate_status(group, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Policy", |group, _| policy(group).into()),
            Column::new("Workload", |group, _| workload(group)),
            Column::new("Status", |group, _| status(group).into()),
            Column::AGE,
        ]
    }
}

fn policy(group: &Value) -> &'static str {
    let gang = group.at(&["spec", "schedulingPolicy", "gang"]);
    if gang.is_some_and(|gang| !gang.is_null()) { "Gang" } else { "Basic" }
}

fn workload(group: &Value) -> Cell {
    match group.at(&["spec", "podGroupTemplateRef"]).filter(|template| !template.is_null()) {
        Some(template) => text(template, &["workload", "workloadName"]),
        None => NONE.into(),
    }
}

fn status(group: &Value) -> &str {
    let last = |name| {
        let conditions = group.items_at(&["status", "conditions"]).iter();
        conditions.rev().find(|condition| condition.str_at(&["type"]) == name)
    };
    if let Some(disruption) = last("DisruptionTarget") {
        return disruption.str_at(&["reason"]);
    }
    match last("PodGroupScheduled").map(|condition| condition.str_at(&["status"])) {
        Some("True") => "Scheduled",
        Some(_) => "Unschedulable",
        None => "Pending",
    }
}
