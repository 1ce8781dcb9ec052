//! Stateful sets.

use registry::{Column, Strategy};

use super::CONTAINERS;
use crate::format::{of_containers, ratio};

pub(crate) struct StatefulSet;

impl Strategy for StatefulSet {
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
