//! Jobs.

use meta::{FieldErrors, Value, time::Time};
use registry::{Column, Strategy, WriteContext};

use crate::format::{condition_is_true, is_being_deleted, of_containers, selector};
use crate::validation::jobs;

pub(crate) struct Job;

const CONTAINERS: &[&str] = &["spec", "template", "spec", "containers"];

impl Strategy for Job {
    fn prepare_for_create(&self, job: &mut Value, _cx: &WriteContext<'_>) {
        if !job.bool_at(&["spec", "manualSelector"]) {
            generate_selector(job);
        }
    }

    fn validate(&self, job: &Value, errors: &mut FieldErrors) {
        jobs::job(job, errors);
    }

    fn validate_update(&self, job: &Value, old: &Value, errors: &mut FieldErrors) {
        jobs::job_update(job, old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Status", |job, _| status(job).into()),
            Column::new("Completions", |job, _| completions(job).into()),
            Column::new("Duration", |job, now| duration(job, now).into()),
            Column::AGE,
            Column::new("Containers", |job, _| of_containers(job, CONTAINERS, "name")).wide(),
            Column::new("Images", |job, _| of_containers(job, CONTAINERS, "image")).wide(),
            Column::new("Selector", |job, _| selector(job, &["spec", "selector"])).wide(),
        ]
    }
}

/// Pods of a job are known by its uid, so that no two jobs share any. Labels of the client's own stay,
/// and are refused later if they say something else.
fn generate_selector(job: &mut Value) {
    let [name, uid] = ["name", "uid"].map(|part| Value::from(job.str_at(&["metadata", part])));
    let labels = job.object_at_mut(&["spec", "template", "metadata", "labels"]);
    for (key, value) in [
        ("job-name", &name),
        ("controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("batch.kubernetes.io/controller-uid", &uid),
    ] {
        if !labels.contains_key(key) {
            labels.insert(key, value.clone());
        }
    }
    let selector = job.object_at_mut(&["spec", "selector", "matchLabels"]);
    if !selector.contains_key(UID_LABEL) {
        selector.insert(UID_LABEL, uid);
    }
}

const UID_LABEL: &str = "batch.kubernetes.io/controller-uid";

/// What is final comes first.
fn status(job: &Value) -> &'static str {
    let is = |condition| condition_is_true(job, condition);
    match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if is_being_deleted(job) => "Terminating",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

/// `1/3`, or `0/1 of 5` where any one success of five workers is enough.
fn completions(job: &Value) -> String {
    let succeeded = job.i64_at(&["status", "succeeded"]).unwrap_or_default();
    match (job.i64_at(&["spec", "completions"]), job.i64_at(&["spec", "parallelism"])) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, Some(workers @ 2..)) => format!("{succeeded}/1 of {workers}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

/// How long it took, or has been running so far; empty before it starts.
fn duration(job: &Value, now: Time) -> String {
    let time = |field| Time::parse(job.str_at(&["status", field])).ok();
    time("startTime")
        .map_or(String::new(), |start| time("completionTime").unwrap_or(now).since(start).human())
}
