//! Mutating admission policies.

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use super::match_resources::default_match_resources;
use super::policy_format::param_kind;
use crate::fill::Fill;
use crate::format::count;
use crate::validation::admission;
use crate::warnings;

pub(crate) struct MutatingAdmissionPolicy;

impl Strategy for MutatingAdmissionPolicy {
    fn default(&self, policy: &mut Value) {
        let spec = policy.object_at_mut(&["spec"]);
        spec.fill("failurePolicy", "Fail");
        if let Some(constraints) = spec.given("matchConstraints") {
            default_match_resources(constraints);
        }
    }

    fn validate(&self, policy: &Value, errors: &mut FieldErrors) {
        admission::mutating_policy(policy, None, errors);
    }

    fn validate_update(&self, policy: &Value, old: &Value, errors: &mut FieldErrors) {
        admission::mutating_policy(policy, Some(old), errors);
    }

    fn warnings(&self, _subresource: &str, object: &Value, _old: Option<&Value>) -> Vec<String> {
        warnings::reserved_for_files(object)
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::integer("Mutations", |policy, _| count(policy, &["spec", "mutations"])),
            Column::new("ParamKind", |policy, _| param_kind(policy).into()),
            Column::AGE,
        ]
    }
}
