//! Replication controllers: what replica sets were before them.

use registry::{Column, Strategy};

use crate::format::{labels, number, of_containers};

pub(crate) struct ReplicationController;

const CONTAINERS: &[&str] = &["spec", "template", "spec", "containers"];

impl Strategy for ReplicationController {
    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::integer("Desired", |rc, _| number(rc, &["spec", "replicas"])),
            Column::integer("Current", |rc, _| number(rc, &["status", "replicas"])),
            Column::integer("Ready", |rc, _| number(rc, &["status", "readyReplicas"])),
            Column::AGE,
            Column::new("Containers", |rc, _| of_containers(rc, CONTAINERS, "name")).wide(),
            Column::new("Images", |rc, _| of_containers(rc, CONTAINERS, "image")).wide(),
            Column::new("Selector", |rc, _| labels(rc, &["spec", "selector"])).wide(),
        ]
    }
}
