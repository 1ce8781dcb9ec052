//! Replica sets.

use registry::{Column, Strategy};

use super::CONTAINERS;
use crate::format::{number, of_containers, selector};

pub(crate) struct ReplicaSet;

impl Strategy for ReplicaSet {
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
