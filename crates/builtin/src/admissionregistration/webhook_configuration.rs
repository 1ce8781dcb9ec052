//! The configurations of validating and mutating webhooks, which look alike.

use registry::{Column, Strategy};

use crate::format::count;

pub(crate) struct WebhookConfiguration;

impl Strategy for WebhookConfiguration {
    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::integer("Webhooks", |configuration, _| count(configuration, &["webhooks"])),
            Column::AGE,
        ]
    }
}
