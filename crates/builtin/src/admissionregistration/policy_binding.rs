//! The bindings of validating and mutating admission policies, which look alike.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use super::match_resources::default_match_resources;
use super::policy_printer_cells::param_ref;
use crate::defaulting::SetDefault;
use crate::printer_cells::text;
use crate::warnings;

pub(crate) struct PolicyBinding;

impl Strategy for PolicyBinding {
    fn default(&self, binding: &mut Value) {
        if let Some(resources) = binding.object_at_mut(&["spec"]).given("matchResources") {
            default_match_resources(resources);
        }
    }

    fn validate(&self, binding: &Value, errors: &mut FieldErrors) {
        validation::validate(binding, errors);
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
