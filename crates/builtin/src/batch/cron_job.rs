//! Cron jobs.

mod validation;

use meta::{FieldErrors, Value, time::Time};
use registry::{Cell, Column, Strategy, since};

use super::job::default_failure_policy;
use super::job::spec_warnings;
use crate::core::pod_spec::default_template;
use crate::defaulting::SetDefault;
use crate::printer_cells::{NONE, UNSET, boolean, count, of_containers, selector, text, text_or};
use crate::validation::cursor::Field;
use crate::validation::pod_spec::PodSpecOptions;
use crate::warnings;

pub(crate) struct CronJob(pub(crate) PodSpecOptions);

const CONTAINERS: &[&str] = &["spec", "jobTemplate", "spec", "template", "spec", "containers"];

impl Strategy for CronJob {
    fn default(&self, job: &mut Value) {
        let spec = job.object_at_mut(&["spec"]);
        spec.set_default_if_empty("concurrencyPolicy", "Allow");
        spec.set_default("suspend", false);
        spec.set_default("successfulJobsHistoryLimit", 3i64);
        spec.set_default("failedJobsHistoryLimit", 1i64);
        // What else a job has by default it gets when it is made.
        let template = spec.part("jobTemplate").part("spec");
        default_failure_policy(template);
        default_template(template.part("template"));
    }

    fn validate(&self, job: &Value, errors: &mut FieldErrors) {
        validation::validate(job, self.0, errors);
    }

    fn validate_update(&self, job: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(job, old, self.0, errors);
    }

    fn warnings(&self, _subresource: &str, cron_job: &Value, old: Option<&Value>) -> Vec<String> {
        let mut texts = Vec::new();
        if old.is_none() {
            texts.extend(warnings::pods_named_after(cron_job));
        }
        if warnings::counted_up(cron_job, old) {
            let root = Field::root(cron_job);
            let spec = root.get("spec");
            texts.extend(spec_warnings(&spec.get("jobTemplate").get("spec")));
        }
        if old.is_some() && cron_job.str_at(&["spec", "schedule"]).contains("TZ") {
            texts.push(
                "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
                 https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more \
                 details"
                    .to_owned(),
            );
        }
        texts
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Schedule", |cron, _| text(cron, &["spec", "schedule"])),
            Column::new("Timezone", |cron, _| text_or(cron, &["spec", "timeZone"], NONE)),
            boolean("Suspend", |cron, _| suspended(cron).into()),
            Column::integer("Active", |cron, _| count(cron, &["status", "active"])),
            Column::new("Last Schedule", last_schedule),
            Column::AGE,
            Column::new("Containers", |cron, _| of_containers(cron, CONTAINERS, "name")).wide(),
            Column::new("Images", |cron, _| of_containers(cron, CONTAINERS, "image")).wide(),
            Column::new("Selector", |cron, _| {
                selector(cron, &["spec", "jobTemplate", "spec", "selector"])
            })
            .wide(),
        ]
    }
}

/// Compat: the column says it holds booleans; kube-apiserver sends these texts all the same.
fn suspended(cron: &Value) -> &'static str {
    match cron.at(&["spec", "suspend"]).and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => UNSET,
    }
}

fn last_schedule(cron: &Value, now: Time) -> Cell {
    match cron.str_at(&["status", "lastScheduleTime"]) {
        "" => NONE.into(),
        time => since(time, now),
    }
}
