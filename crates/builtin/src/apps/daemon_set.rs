//! Daemon sets.

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use super::CONTAINERS;
use crate::core::pod_spec::default_template;
use crate::fill::Fill;
use crate::format::{labels, number, of_containers, selector};
use crate::validation::workloads;

pub(crate) struct DaemonSet;

impl Strategy for DaemonSet {
    fn default(&self, set: &mut Value) {
        let spec = set.object_at_mut(&["spec"]);
        spec.fill("revisionHistoryLimit", 10i64);
        let strategy = spec.part("updateStrategy");
        strategy.fill_empty("type", "RollingUpdate");
        if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate") {
            let rolling = strategy.part("rollingUpdate");
            rolling.fill("maxUnavailable", 1i64);
            rolling.fill("maxSurge", 0i64);
        }
        default_template(spec.part("template"));
    }

    fn validate(&self, set: &Value, errors: &mut FieldErrors) {
        workloads::daemon_set(set, errors);
    }

    fn validate_update(&self, set: &Value, old: &Value, errors: &mut FieldErrors) {
        workloads::daemon_set_update(set, old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::integer("Desired", |set, _| number(set, &["status", "desiredNumberScheduled"])),
            Column::integer("Current", |set, _| number(set, &["status", "currentNumberScheduled"])),
            Column::integer("Ready", |set, _| number(set, &["status", "numberReady"])),
            Column::integer("Up-to-date", |set, _| {
                number(set, &["status", "updatedNumberScheduled"])
            }),
            Column::integer("Available", |set, _| number(set, &["status", "numberAvailable"])),
            Column::new("Node Selector", |set, _| {
                labels(set, &["spec", "template", "spec", "nodeSelector"])
            }),
            Column::AGE,
            Column::new("Containers", |set, _| of_containers(set, CONTAINERS, "name")).wide(),
            Column::new("Images", |set, _| of_containers(set, CONTAINERS, "image")).wide(),
            Column::new("Selector", |set, _| selector(set, &["spec", "selector"])).wide(),
        ]
    }
}
