//! Deployments.

mod validation;

use meta::{FieldErrors, Value, selector::LabelSelector};
use registry::{Column, Strategy, WriteContext, keep_all_but_status};

use super::CONTAINERS;
use crate::core::pod_spec::default_template;
use crate::defaulting::SetDefault;
use crate::printer_cells::{number, of_containers, ratio};
use crate::validation::pod_spec::PodSpecOptions;
use crate::warnings;

pub(crate) struct Deployment(pub(crate) PodSpecOptions);

impl Strategy for Deployment {
    fn default(&self, deployment: &mut Value) {
        let spec = deployment.object_at_mut(&["spec"]);
        spec.set_default("replicas", 1i64);
        spec.set_default("revisionHistoryLimit", 10i64);
        spec.set_default("progressDeadlineSeconds", 600i64);
        let strategy = spec.part("strategy");
        strategy.set_default_if_empty("type", "RollingUpdate");
        if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate") {
            let rolling = strategy.part("rollingUpdate");
            rolling.set_default("maxUnavailable", "25%");
            rolling.set_default("maxSurge", "25%");
        }
        default_template(spec.part("template"));
    }

    fn prepare_for_subresource(
        &self,
        subresource: &str,
        deployment: &mut Value,
        old: &Value,
        _cx: &WriteContext<'_>,
    ) {
        keep_all_but_status(subresource, deployment, old);
        // Compat: a write of the status cannot change labels.
        if subresource == "status" {
            match old.at(&["metadata", "labels"]) {
                Some(labels) => deployment.set_at(&["metadata", "labels"], labels.clone()),
                None => drop(deployment.remove_at(&["metadata", "labels"])),
            }
        }
    }

    fn validate(&self, deployment: &Value, errors: &mut FieldErrors) {
        validation::validate(deployment, self.0, errors);
    }

    fn validate_update(&self, deployment: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(deployment, old, self.0, errors);
    }

    fn warnings(&self, _subresource: &str, deployment: &Value, old: Option<&Value>) -> Vec<String> {
        warnings::controller(deployment, old)
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Ready", |d, _| {
                ratio(d, &["status", "readyReplicas"], &["spec", "replicas"])
            }),
            Column::new("Up-to-date", |deployment, _| {
                number(deployment, &["status", "updatedReplicas"])
            }),
            Column::new("Available", |deployment, _| {
                number(deployment, &["status", "availableReplicas"])
            }),
            Column::AGE,
            Column::new("Containers", |deployment, _| {
                of_containers(deployment, CONTAINERS, "name")
            })
            .wide(),
            Column::new("Images", |deployment, _| of_containers(deployment, CONTAINERS, "image"))
                .wide(),
            Column::new("Selector", |deployment, _| selector(deployment).into()).wide(),
        ]
    }
}

/// Unlike the other controllers, a deployment shows nothing instead of `<none>`.
fn selector(deployment: &Value) -> String {
    let selector = LabelSelector::from_object(deployment.at(&["spec", "selector"]));
    selector.map_or_else(|_| "<invalid>".to_owned(), |selector| selector.to_string())
}
