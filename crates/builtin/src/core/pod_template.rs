//! Pod templates.

use registry::{Column, Strategy};

use crate::format::{labels, of_containers};

pub(crate) struct PodTemplate;

const CONTAINERS: &[&str] = &["template", "spec", "containers"];

impl Strategy for PodTemplate {
    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Containers", |template, _| of_containers(template, CONTAINERS, "name")),
            Column::new("Images", |template, _| of_containers(template, CONTAINERS, "image")),
            Column::new("Pod Labels", |template, _| {
                labels(template, &["template", "metadata", "labels"])
            }),
        ]
    }
}
