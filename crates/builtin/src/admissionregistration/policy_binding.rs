//! The bindings of validating and mutating admission policies, which look alike.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use super::match_resources::default_match_resources;
use super::policy_printer_cells::param_ref;
use super::static_names::StaticNames;
use crate::defaulting::SetDefault;
use crate::printer_cells::text;

pub(crate) struct PolicyBinding(pub(crate) StaticNames);

impl Strategy for PolicyBinding {
    fn default(&self, binding: &mut Value) {
        if let Some(resources) = binding.object_at_mut(&["spec"]).given("matchResources") {
            default_match_resources(resources);
        }
    }

    fn validate(&self, binding: &Value, errors: &mut FieldErrors) {
        validation::validate(binding, errors);
        self.0.validate(binding, errors);
    }

    fn validate_update(&self, binding: &Value, _old: &Value, errors: &mut FieldErrors) {
        validation::validate(binding, errors);
    }

    fn warnings(&self, _subresource: &str, object: &Value, old: Option<&Value>) -> Vec<String> {
        self.0.warnings(object, old)
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
