//! Resource claim templates.

use meta::Value;
use registry::{Column, Strategy};

use super::device::default_claim_spec;

pub(crate) struct ResourceClaimTemplate;

impl Strategy for ResourceClaimTemplate {
    fn default(&self, template: &mut Value) {
        default_claim_spec(template.object_at_mut(&["spec", "spec"]));
    }

    fn columns(&self) -> Vec<Column> {
        vec![Column::NAME, Column::AGE]
    }
}
