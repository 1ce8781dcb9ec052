//! The bindings of validating and mutating admission policies, which look alike.

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use super::match_resources::default_match_resources;
use super::policy_format::param_ref;
use crate::fill::Fill;
use crate::format::text;
use crate::validation::admission;
use crate::warnings;

pub(crate) struct PolicyBinding;

impl Strategy for PolicyBinding {
    fn default(&self, binding: &mut Value) {
        if let Some(resources) = binding.object_at_mut(&["spec"]).given("matchResources") {
            default_match_resources(resources);
        }
    }

    fn validate(&self, binding: &Value, errors: &mut FieldErrors) {
        admission::policy_binding(binding, errors);
    }

    fn warnings(&self, _subresource: &str, object: &Value, _old: Option<&Value>) -> Vec<String> {
        warnings::reserved_for_files(object)
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("PolicyName", |binding, _| text(binding, &["spec", "policyName"])),
            Column::new("ParamRef", |binding, _| param_ref(binding).into()),
            Column::AGE,
        ]
    }
}
