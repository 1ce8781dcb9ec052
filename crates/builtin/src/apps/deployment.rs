//! Deployments.

use meta::{FieldErrors, Value, selector::LabelSelector};
use registry::{Column, Strategy};

use super::CONTAINERS;
use crate::format::{number, of_containers, ratio};
use crate::validation::workloads;

pub(crate) struct Deployment;

impl Strategy for Deployment {
    fn validate(&self, deployment: &Value, errors: &mut FieldErrors) {
        workloads::deployment(deployment, errors);
    }

    fn validate_update(&self, deployment: &Value, old: &Value, errors: &mut FieldErrors) {
        workloads::deployment_update(deployment, old, errors);
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
