//! Validation of cron jobs.

use meta::{FieldErrors, Value, field::FieldReason};

use crate::{
    batch::job::validation::job_spec,
    validation::{
        counts, cron, cursor::Field, pod_spec::PodSpecOptions, ratcheting::ratchet,
        workloads::show_selector,
    },
};

pub(crate) fn validate(object: &Value, options: PodSpecOptions, errors: &mut FieldErrors) {
    let root = Field::root(object);
    cron_job_spec(&root.get("spec"), None, options, errors);
    let metadata = root.get("metadata");
    // The controller appends the time, and jobs become labels of their pods.
    if metadata.get("name").len() > 52 {
        metadata.get("name").invalid(errors, "must be no more than 52 characters");
    }
}

pub(crate) fn validate_update(
    object: &Value,
    old: &Value,
    options: PodSpecOptions,
    errors: &mut FieldErrors,
) {
    let (root, old_root) = (Field::root(object), Field::root(old));
    let path = ["spec", "jobTemplate", "spec", "template", "spec"];
    let for_update = options.for_update(old.at(&path));
    cron_job_spec(&root.get("spec"), Some(&old_root.get("spec")), for_update, errors);
    ratchet(old, |old, errors| validate(old, options, errors), errors);
}

fn cron_job_spec(
    spec: &Field<'_>,
    old: Option<&Field<'_>>,
    options: PodSpecOptions,
    errors: &mut FieldErrors,
) {
    let (schedule, zone) = (spec.get("schedule"), spec.get("timeZone"));
    if schedule.require(errors) {
        if let Some(why) = cron::schedule_error(schedule.str()) {
            schedule.invalid(errors, &why);
        }
        let zone_was_there = old.is_some_and(|old| old.str_at(&["schedule"]).contains("TZ"));
        if schedule.str().contains("TZ") {
            if !zone_was_there {
                let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
                schedule.invalid(errors, why);
            } else if zone.is_set() {
                let why = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
                schedule.invalid(errors, why);
            }
        }
    }
    spec.get("startingDeadlineSeconds").non_negative(errors);
    if zone.is_set() && old.is_none_or(|old| old.get("timeZone").value() != zone.value()) {
        time_zone(&zone, errors);
    }
    let policies = ["Allow", "Forbid", "Replace"];
    spec.get("concurrencyPolicy").one_of_or_default(errors, &policies);
    let template = spec.get("jobTemplate");
    let job = template.get("spec");
    job_spec(&job, options, errors);
    let selector = job.get("selector");
    if selector.is_set() {
        let shown = show_selector(&selector);
        selector.invalid_shown(errors, &shown, "`selector` will be auto-generated");
    }
    if job.get("manualSelector").bool() {
        let message = "Unsupported value: true: supported values: \"nil\", \"false\"".to_owned();
        errors.push(FieldReason::NotSupported, job.get("manualSelector").path(), message);
    }
    counts(spec, &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"], errors);
}

fn time_zone(zone: &Field<'_>, errors: &mut FieldErrors) {
    let text = zone.str();
    if text.is_empty() {
        return zone.invalid(errors, "timeZone must be nil or non-empty string");
    }
    let is_part = |part: &str| {
        !matches!(part, "." | "..")
            && !part.starts_with('-')
            && (1..=14).contains(&part.len())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || ".-_+".contains(c))
    };
    if !text.split('/').all(is_part) {
        return zone.invalid(errors, &format!("unknown time zone {text}"));
    }
    if text.eq_ignore_ascii_case("Local") {
        let why = "timeZone must be an explicit time zone as defined in \
                   https://www.iana.org/time-zones";
        zone.invalid(errors, why);
    }
    if !matches!(text, "UTC" | "Local") && !crate::validation::time_zones::is_known(text) {
        zone.invalid(errors, &format!("unknown time zone {text}"));
    }
}
