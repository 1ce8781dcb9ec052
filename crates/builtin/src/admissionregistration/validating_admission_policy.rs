//! Validating admission policies.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use super::match_resources::default_match_resources;
use super::policy_printer_cells::param_kind;
use super::static_names::StaticNames;
use crate::defaulting::SetDefault;
use crate::printer_cells::count;

pub(crate) struct ValidatingAdmissionPolicy(pub(crate) StaticNames);

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
        self.0.validate(policy, errors);
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

    fn warnings(&self, _subresource: &str, object: &Value, old: Option<&Value>) -> Vec<String> {
        self.0.warnings(object, old)
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
