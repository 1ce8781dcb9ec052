//! Validating admission policies.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use super::match_resources::default_match_resources;
use super::policy_printer_cells::param_kind;
use crate::defaulting::SetDefault;
use crate::printer_cells::count;
use crate::warnings;

pub(crate) struct ValidatingAdmissionPolicy;

impl Strategy for ValidatingAdmissionPolicy {
    fn default(&self, policy: &mut Value) {
        let spec = policy.object_at_mut(&["spec"]);
        spec.set_default("failurePolicy", "Fail");
        if let Some(constraints) = spec.given("matchConstraints") {
            default_match_resources(constraints);
        }
    }

    fn validate(&self, policy: &Value, errors: &mut FieldErrors) {
        validation::validate(policy, None, errors);
    }

    fn validate_update(&self, policy: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate(policy, Some(old), errors);
    }

    fn validate_subresource(
        &self,
        _subresource: &str,
        policy: &Value,
        _old: &Value,
        errors: &mut FieldErrors,
    ) {
        validation::validate_status(policy, errors);
    }

    fn warnings(&self, _subresource: &str, object: &Value, _old: Option<&Value>) -> Vec<String> {
        warnings::reserved_for_files(object)
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::integer("Validations", |policy, _| count(policy, &["spec", "validations"])),
            Column::new("ParamKind", |policy, _| param_kind(policy).into()),
            Column::AGE,
        ]
    }
}
