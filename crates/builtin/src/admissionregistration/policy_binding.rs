//! The bindings of validating and mutating admission policies, which look alike.

use registry::{Column, Strategy};

use super::policy_format::param_ref;
use crate::format::text;

pub(crate) struct PolicyBinding;

impl Strategy for PolicyBinding {
    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("PolicyName", |binding, _| text(binding, &["spec", "policyName"])),
            Column::new("ParamRef", |binding, _| param_ref(binding).into()),
            Column::AGE,
        ]
    }
}
