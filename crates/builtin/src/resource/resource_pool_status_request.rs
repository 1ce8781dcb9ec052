//! Requests for the state of device pools, answered in their status.

mod validation;

use meta::{FieldErrors, Value, time::Time};
use registry::{Cell, Column, Strategy, since};

use crate::printer_cells::{NONE, number, text};

pub(crate) struct ResourcePoolStatusRequest;

impl Strategy for ResourcePoolStatusRequest {
    fn validate(&self, request: &Value, errors: &mut FieldErrors) {
        validation::validate(request, errors);
    }

    fn validate_update(&self, request: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(request, old, errors);
    }

    fn validate_subresource(
        &self,
        _subresource: &str,
        request: &Value,
        old: &Value,
        errors: &mut FieldErrors,
    ) {
        validation::validate_status_update(request, old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Driver", |request, _| text(request, &["spec", "driver"])),
            Column::new("Total", |request, _| devices(request, "totalDevices").into()),
            Column::new("Available", |request, _| devices(request, "availableDevices").into()),
            Column::new("Allocated", |request, _| devices(request, "allocatedDevices").into()),
            Column::new("Unavailable", |request, _| devices(request, "unavailableDevices").into()),
            Column::new("Errors", |request, _| errors(request).into()),
            Column::integer("Pools", |request, _| number(request, &["status", "poolCount"])),
            Column::new("Status", |request, _| status(request).into()),
            Column::new("Completed", completed),
        ]
    }
}

/// The condition that ended the request: `Complete` or `Failed`, whichever comes first.
fn outcome(request: &Value) -> Option<&Value> {
    request.items_at(&["status", "conditions"]).iter().find(|condition| {
        matches!(condition.str_at(&["type"]), "Complete" | "Failed")
            && condition.str_at(&["status"]) == "True"
    })
}

fn outcome_is(request: &Value, name: &str) -> bool {
    outcome(request).is_some_and(|condition| condition.str_at(&["type"]) == name)
}

/// The pools, where there is an answer that can be counted.
fn pools(request: &Value) -> Option<&[Value]> {
    let answered = request.get("status").is_some_and(|status| !status.is_null());
    (answered && !outcome_is(request, "Failed")).then(|| request.items_at(&["status", "pools"]))
}

const NO_ANSWER: &str = "-";

fn devices(request: &Value, field: &str) -> String {
    let Some(pools) = pools(request) else { return NO_ANSWER.to_owned() };
    let sum: i64 = pools.iter().filter_map(|pool| pool.i64_at(&[field])).sum();
    sum.to_string()
}

fn errors(request: &Value) -> String {
    let Some(pools) = pools(request) else { return NO_ANSWER.to_owned() };
    let failed = |pool: &&Value| pool.get("validationError").is_some_and(|error| !error.is_null());
    pools.iter().filter(failed).count().to_string()
}

/// `Pending`, `Failed`, `Complete`, or `Complete (10/25 pools)` where the answer was cut off.
fn status(request: &Value) -> String {
    let Some(outcome) = outcome(request) else { return "Pending".to_owned() };
    let (shown, all) = (
        request.items_at(&["status", "pools"]).len() as i64,
        request.i64_at(&["status", "poolCount"]).unwrap_or_default(),
    );
    match outcome.str_at(&["type"]) {
        "Complete" if all > shown => format!("Complete ({shown}/{all} pools)"),
        name => name.to_owned(),
    }
}

fn completed(request: &Value, now: Time) -> Cell {
    match outcome(request).filter(|condition| condition.str_at(&["type"]) == "Complete") {
        Some(complete) => since(complete.str_at(&["lastTransitionTime"]), now),
        None => NONE.into(),
    }
}
