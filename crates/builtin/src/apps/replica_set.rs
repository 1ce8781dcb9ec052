//! Replica sets.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use super::CONTAINERS;
use crate::core::pod_spec::default_template;
use crate::defaulting::SetDefault;
use crate::printer_cells::{number, of_containers, selector};
use crate::validation::pod_spec::PodSpecOptions;
use crate::warnings;

pub(crate) struct ReplicaSet(pub(crate) PodSpecOptions);

impl Strategy for ReplicaSet {
    fn default(&self, set: &mut Value) {
        let spec = set.object_at_mut(&["spec"]);
        spec.set_default("replicas", 1i64);
        default_template(spec.part("template"));
    }

    fn validate(&self, set: &Value, errors: &mut FieldErrors) {
        validation::validate(set, self.0, errors);
    }

    fn validate_update(&self, set: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(set, old, self.0, errors);
    }

    fn warnings(&self, _subresource: &str, set: &Value, old: Option<&Value>) -> Vec<String> {
        warnings::controller(set, old)
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::integer("Desired", |set, _| number(set, &["spec", "replicas"])),
            Column::integer("Current", |set, _| number(set, &["status", "replicas"])),
            Column::integer("Ready", |set, _| number(set, &["status", "readyReplicas"])),
            Column::AGE,
            Column::new("Containers", |set, _| of_containers(set, CONTAINERS, "name")).wide(),
            Column::new("Images", |set, _| of_containers(set, CONTAINERS, "image")).wide(),
            Column::new("Selector", |set, _| selector(set, &["spec", "selector"])).wide(),
        ]
    }
}
