//! What a job controller may report about a job. Outside controllers do that as well (`managedBy`), so
//! that clients rely on it: a finished job stays finished, counters don't go back, times fit together.
//!
//! A rule holds where something that it is about changes, so that what an older server let through
//! doesn't stand in the way of the rest.

use std::collections::BTreeSet;

use meta::{FieldErrors, Value, time::Time};

use super::{count_indexes, index_interval, invalid_unseen};
use crate::validation::{
    counts,
    cursor::{Field, IMMUTABLE},
};

pub(crate) fn validate_update(job: &Value, old: &Value, errors: &mut FieldErrors) {
    let root = Field::root(job);
    let (spec, status) = (root.get("spec"), root.get("status"));
    let change = Change { job, old };
    counts(&status, &["active", "succeeded", "failed", "ready", "terminating"], errors);
    uncounted_pods(&status.get("uncountedTerminatedPods"), errors);
    outcome(&change, &status, errors);
    finished(&change, &spec, &status, errors);
    indexes(&change, &spec, &status, errors);
    let terminating = status.get("terminating");
    if change.of(&["terminating"], &[]) || change.finished() {
        let is_finished = is_true(job, "Complete") || is_true(job, "Failed");
        if is_finished && terminating.int_or_zero() > 0 {
            terminating.invalid(errors, "terminating>0 is invalid for finished job");
        }
    }
    let (ready, active) = (status.get("ready"), status.get("active"));
    if change.of(&["ready", "active"], &[])
        && ready.int().is_some_and(|ready| ready > active.int_or_zero())
    {
        ready.invalid(errors, "cannot set more ready pods than active");
    }
    let conditions = status.get("conditions");
    let is_met = is_true(job, SUCCESS);
    for (wrong, why) in [
        (
            is_met && is_true(job, "Failed"),
            "cannot set SuccessCriteriaMet=True and Failed=true conditions",
        ),
        (
            is_met && is_true(job, FAILURE),
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        ),
        (
            spec.get("successPolicy").is_set() && !is_met && is_true(job, "Complete"),
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        ),
    ] {
        if wrong {
            invalid_unseen(&conditions, why, errors);
        }
    }
    transition(&change, &spec, &status, errors);
}

const SUCCESS: &str = "SuccessCriteriaMet";
const FAILURE: &str = "FailureTarget";

fn is_true(job: &Value, kind: &str) -> bool {
    condition_is(job, kind, "True")
}

fn condition_is(job: &Value, kind: &str, status: &str) -> bool {
    job.items_at(&["status", "conditions"]).iter().any(|condition| {
        condition.str_at(&["type"]) == kind && condition.str_at(&["status"]) == status
    })
}

struct Change<'a> {
    job: &'a Value,
    old: &'a Value,
}

impl Change<'_> {
    /// Whether one of these fields of the status or one of these conditions changes.
    fn of(&self, fields: &[&str], conditions: &[&str]) -> bool {
        let field = |job: &Value, name: &str| {
            let value = job.at(&["status", name]);
            value.filter(|value| !matches!(value, Value::Null)).cloned()
        };
        fields.iter().any(|name| field(self.job, name) != field(self.old, name))
            || conditions.iter().any(|kind| is_true(self.job, kind) != is_true(self.old, kind))
    }

    fn finished(&self) -> bool {
        let is_finished = |job: &Value| is_true(job, "Complete") || is_true(job, "Failed");
        is_finished(self.job) != is_finished(self.old)
    }
}

fn uncounted_pods(pods: &Field<'_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for list in ["succeeded", "failed"].map(|list| pods.get(list)) {
        for uid in list.items() {
            if uid.is_empty() {
                uid.invalid_value(errors, "", "must not be empty");
            } else if !seen.insert(uid.str().to_owned()) {
                uid.duplicate(errors);
            }
        }
    }
}

/// How it ended, and when.
fn outcome(change: &Change<'_>, status: &Field<'_>, errors: &mut FieldErrors) {
    let is = |kind: &str| is_true(change.job, kind);
    let (complete, failed) = (is("Complete"), is("Failed"));
    let conditions = status.get("conditions");
    if change.of(&[], &["Complete", "Failed"]) && complete && failed {
        let why = "cannot set Complete=True and Failed=true conditions";
        invalid_unseen(&conditions, why, errors);
    }
    if change.of(&[], &["Complete", FAILURE]) && complete && is(FAILURE) {
        let why = "cannot set Complete=True and FailureTarget=true conditions";
        invalid_unseen(&conditions, why, errors);
    }
    let end = status.get("completionTime");
    if change.of(&["completionTime"], &["Complete"]) {
        if end.is_set() && !complete {
            let why = "cannot set completionTime when there is no Complete=True condition";
            end.invalid(errors, why);
        }
        if !end.is_set() && complete {
            end.required(errors, "completionTime is required for Complete jobs");
        }
    }
    if change.of(&["startTime", "completionTime"], &[]) {
        let times = [status.get("startTime"), end].map(|time| Time::parse(time.str()).ok());
        if let [Some(start), Some(finish)] = times
            && finish < start
        {
            end.invalid(errors, "must be equal to or after `startTime`");
        }
    }
    if change.of(&["failedIndexes"], &["Failed"]) && failed && !is(FAILURE) {
        let why = "cannot set Failed=True condition without the FailureTarget=true condition";
        invalid_unseen(&conditions, why, errors);
    }
    if change.of(&[], &["Complete", SUCCESS]) && complete && !is(SUCCESS) {
        let why =
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        invalid_unseen(&conditions, why, errors);
    }
}

/// What a job that has ended no longer has.
fn finished(change: &Change<'_>, spec: &Field<'_>, status: &Field<'_>, errors: &mut FieldErrors) {
    if !is_true(change.job, "Complete") && !is_true(change.job, "Failed") {
        return;
    }
    let ends = change.finished();
    let active = status.get("active");
    if (ends || change.of(&["active"], &[])) && active.int_or_zero() > 0 {
        active.invalid(errors, "active>0 is invalid for finished job");
    }
    let never_ran = spec.get("suspend").bool() && spec.get("completions").int() == Some(0);
    let start = status.get("startTime");
    if (ends || change.of(&["startTime"], &[])) && !never_ran && !start.is_set() {
        start.required(errors, "startTime is required for finished job");
    }
    let uncounted = status.get("uncountedTerminatedPods");
    let any = !uncounted.get("failed").is_empty() || !uncounted.get("succeeded").is_empty();
    if (ends || change.of(&["uncountedTerminatedPods"], &[])) && any {
        let list = |name: &str| {
            uncounted.value_at(&[name]).map_or("null".to_owned(), meta::json::to_string)
        };
        let shown = format!(r#"{{"Succeeded":{},"Failed":{}}}"#, list("succeeded"), list("failed"));
        uncounted.invalid_shown(errors, &shown, "must be empty for finished job");
    }
}

fn indexes(change: &Change<'_>, spec: &Field<'_>, status: &Field<'_>, errors: &mut FieldErrors) {
    let (completed, failed) = (status.get("completedIndexes"), status.get("failedIndexes"));
    let completions = spec.get("completions").int();
    let per_index = spec.get("backoffLimitPerIndex").is_set();
    let completed_changed = change.of(&["completedIndexes"], &[]);
    let failed_changed = change.of(&["failedIndexes"], &[]);
    let format = |field: &Field<'_>, name: &str, errors: &mut FieldErrors| {
        if let Some(completions) = completions
            && let Err(why) = count_indexes(field.str(), completions)
        {
            field.invalid(errors, &format!("error parsing {name}: {why}"));
        }
    };
    if completed_changed {
        format(&completed, "completedIndexes", errors);
    }
    if failed_changed && per_index && failed.is_set() {
        format(&failed, "failedIndexes", errors);
    }
    if completed_changed && !completed.is_empty() && !spec.get("completionMode").is("Indexed") {
        let why = "cannot set non-empty completedIndexes when non-indexed completion mode";
        completed.invalid(errors, why);
    }
    if failed_changed && failed.is_set() && !per_index {
        let why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        failed.invalid(errors, why);
    }
    if (completed_changed || failed_changed)
        && let Some(completions) = completions
        && let Some(at) = overlap(completed.str(), failed.str(), completions)
    {
        let why = format!("failedIndexes and completedIndexes overlap at index: {at}");
        failed.invalid(errors, &why);
    }
}

/// The first index that is in both. Intervals that can't be parsed are reported elsewhere.
fn overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let intervals = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|part| index_interval(part, completions).ok()).collect()
    };
    let (completed, failed) = (intervals(completed), intervals(failed));
    let (mut c, mut f) = (0, 0);
    while let (Some(&(c_first, c_last)), Some(&(f_first, f_last))) =
        (completed.get(c), failed.get(f))
    {
        if c_first <= f_last && f_first <= c_last {
            return Some(c_first.max(f_first));
        }
        if c_first <= f_first {
            c += 1;
        } else {
            f += 1;
        }
    }
    None
}

/// What must not be taken back.
fn transition(change: &Change<'_>, spec: &Field<'_>, status: &Field<'_>, errors: &mut FieldErrors) {
    let (job, old) = (change.job, change.old);
    let conditions = status.get("conditions");
    for kind in ["Failed", "Complete", FAILURE] {
        if is_true(old, kind) && !is_true(job, kind) {
            let why = format!("cannot disable the terminal {kind}=True condition");
            invalid_unseen(&conditions, &why, errors);
        }
    }
    let number = |job: &Value, name: &str| job.i64_at(&["status", name]).unwrap_or_default();
    // An indexed job whose workers are its indexes can be scaled down.
    let shrinks = spec.get("completionMode").is("Indexed")
        && spec.get("completions").value() == spec.get("parallelism").value();
    for (name, may_shrink) in [("failed", false), ("succeeded", shrinks)] {
        if !may_shrink && number(job, name) < number(old, name) {
            let why = format!("cannot decrease the {name} counter");
            status.get(name).invalid_value(errors, number(job, name), &why);
        }
    }
    let before = |name: &str| old.at(&["status", name]).filter(|time| !time.is_null());
    let end = status.get("completionTime");
    if end.is_set() && before("completionTime").is_some_and(|before| end.value() != Some(before)) {
        end.invalid(errors, IMMUTABLE);
    }
    let resumes = condition_is(old, "Suspended", "True") && condition_is(job, "Suspended", "False");
    let start = status.get("startTime");
    let moved = before("startTime").is_some_and(|before| start.value() != Some(before));
    if moved && !resumes && !spec.get("suspend").bool() {
        start.invalid(errors, "field is immutable for unsuspended job once set");
    }
    if is_true(old, SUCCESS) && !is_true(job, SUCCESS) {
        let why = "cannot disable the SuccessCriteriaMet=True condition";
        invalid_unseen(&conditions, why, errors);
    }
    if is_true(old, "Complete") && !is_true(old, SUCCESS) && is_true(job, SUCCESS) {
        let why = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        invalid_unseen(&conditions, why, errors);
    }
}

#[cfg(test)]
mod tests {
    use super::overlap;

    #[test]
    fn overlapping_indexes_are_found_at_their_first() {
        let cases = [
            ("", "", None),
            ("0-2,5", "3,4", None),
            ("0-2,5", "2-4", Some(2)),
            ("0,2,4-6", "1,3,6-8", Some(6)),
            ("x,4", "4", Some(4)),
        ];
        for (completed, failed, expected) in cases {
            assert_eq!(overlap(completed, failed, 10), expected, "{completed} {failed}");
        }
    }
}
