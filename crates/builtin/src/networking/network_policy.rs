//! Network policies.

use registry::{Column, Strategy};

use crate::format::selector;

pub(crate) struct NetworkPolicy;

impl Strategy for NetworkPolicy {
    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Pod-Selector", |policy, _| selector(policy, &["spec", "podSelector"])),
            Column::AGE,
        ]
    }
}
