//! Stateful sets.

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use super::CONTAINERS;
use crate::format::{of_containers, ratio};
use crate::validation::workloads;

pub(crate) struct StatefulSet;

impl Strategy for StatefulSet {
    fn validate(&self, set: &Value, errors: &mut FieldErrors) {
        workloads::stateful_set(set, errors);
    }

    fn validate_update(&self, set: &Value, old: &Value, errors: &mut FieldErrors) {
        workloads::stateful_set_update(set, old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Ready", |set, _| {
                ratio(set, &["status", "readyReplicas"], &["spec", "replicas"])
            }),
            Column::AGE,
            Column::new("Containers", |set, _| of_containers(set, CONTAINERS, "name")).wide(),
            Column::new("Images", |set, _| of_containers(set, CONTAINERS, "image")).wide(),
        ]
    }
}
