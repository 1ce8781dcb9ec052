//! Jobs.

pub(crate) mod validation;

use meta::{FieldErrors, Map, Value, time::Time};
use registry::{Column, Strategy, WriteContext};

use crate::core::pod_spec::default_template;
use crate::defaulting::{SetDefault, is_empty};
use crate::printer_cells::{condition_is_true, is_being_deleted, of_containers, selector};
use crate::validation::cursor::Field;
use crate::validation::pod_spec::PodSpecOptions;
use crate::warnings;

pub(crate) struct Job(pub(crate) PodSpecOptions);

const CONTAINERS: &[&str] = &["spec", "template", "spec", "containers"];

impl Strategy for Job {
    fn default(&self, job: &mut Value) {
        let job = job.object_at_mut(&[]);
        let spec = job.part("spec");
        default_counts(spec);
        spec.set_default("completionMode", "NonIndexed");
        spec.set_default("suspend", false);
        spec.set_default("manualSelector", false);
        let fails_by_policy = spec.given("podFailurePolicy").is_some();
        let replacement = if fails_by_policy { "Failed" } else { "TerminatingOrFailed" };
        spec.set_default("podReplacementPolicy", replacement);
        default_failure_policy(spec);
        let template = spec.part("template");
        default_template(template);
        take_labels_of_template(job);
    }

    fn prepare_for_create(&self, job: &mut Value, cx: &WriteContext<'_>) {
        let labels = job.at(&["metadata", "labels"]);
        let are_of_template = !cx.has_sent_labels
            && labels.is_some()
            && labels == job.at(&["spec", "template", "metadata", "labels"]);
        if !job.bool_at(&["spec", "manualSelector"]) {
            generate_selector(job);
        }
        // Compat: upstream's job and template share one map, so labels that a job takes from its
        // template include those that are generated for it. A job of a template without labels takes them when
        // it is read.
        if are_of_template {
            job.remove_at(&["metadata", "labels"]);
            take_labels_of_template(job.object_at_mut(&[]));
        }
    }

    fn validate(&self, job: &Value, errors: &mut FieldErrors) {
        validation::validate(job, self.0, errors);
    }

    fn validate_update(&self, job: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(job, old, self.0, errors);
    }

    fn validate_subresource(
        &self,
        _subresource: &str,
        job: &Value,
        old: &Value,
        errors: &mut FieldErrors,
    ) {
        validation::status::validate_update(job, old, errors);
    }

    fn warnings(&self, _subresource: &str, job: &Value, old: Option<&Value>) -> Vec<String> {
        if !warnings::counted_up(job, old) {
            return Vec::new();
        }
        let mut texts = if old.is_none() { warnings::pods_named_after(job) } else { Vec::new() };
        texts.extend(spec_warnings(&Field::root(job).get("spec")));
        texts
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

fn take_labels_of_template(job: &mut Map) {
    let template = job.part("spec").part("template");
    let labels = template.given("metadata").and_then(|own| own.get("labels")).cloned();
    if let Some(labels) = labels.filter(|labels| !is_empty(labels)) {
        job.part("metadata").set_default_if_empty("labels", labels);
    }
}

/// Also of the jobs that a cron job makes.
pub(super) fn spec_warnings(spec: &Field<'_>) -> Vec<String> {
    let mut texts = Vec::new();
    let number = |name: &str| spec.get(name).int_or_zero();
    if spec.get("completionMode").is("Indexed")
        && number("completions") > 100_000
        && number("parallelism") > 10_000
    {
        texts.push(format!(
            "{}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism \
             higher than 10^4, Kubernetes might not be able to track completedIndexes when a big \
             number of indexes fail",
            spec.path()
        ));
    }
    texts.extend(warnings::template(&spec.get("template")));
    texts
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

/// A job that says nothing runs one pod once, and tries it six more times.
fn default_counts(spec: &mut Map) {
    if spec.get("parallelism").is_none_or(Value::is_null) {
        spec.set_default("completions", 1i64);
        spec.insert("parallelism", 1i64);
    }
    let counts_by_index = spec.get("backoffLimitPerIndex").is_some_and(|limit| !limit.is_null());
    let limit = if counts_by_index { i64::from(i32::MAX) } else { 6 };
    spec.set_default("backoffLimit", limit);
}

/// Also of the jobs that a cron job makes.
pub(super) fn default_failure_policy(spec: &mut Map) {
    let Some(policy) = spec.given("podFailurePolicy") else { return };
    for pattern in policy.each("rules").flat_map(|rule| rule.each("onPodConditions")) {
        pattern.set_default_if_empty("status", "True");
    }
}

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
