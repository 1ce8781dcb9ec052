//! Resource claim templates.

pub(crate) mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use super::device::default_claim_spec;
use crate::conversion::device::template_to_newest;

pub(crate) struct ResourceClaimTemplate;

impl Strategy for ResourceClaimTemplate {
    fn default(&self, template: &mut Value) {
        default_claim_spec(template.object_at_mut(&["spec", "spec"]));
    }

    fn validate(&self, template: &Value, errors: &mut FieldErrors) {
        validation::validate(&template_to_newest(template.clone()), errors);
    }

    fn validate_update(&self, template: &Value, old: &Value, errors: &mut FieldErrors) {
        let [template, old] = [template, old].map(|own| template_to_newest(own.clone()));
        validation::validate_update(&template, &old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![Column::NAME, Column::AGE]
    }
}
