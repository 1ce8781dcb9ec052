//! Validating admission policies.

use registry::{Column, Strategy};

use super::policy_format::param_kind;
use crate::format::count;

pub(crate) struct ValidatingAdmissionPolicy;

impl Strategy for ValidatingAdmissionPolicy {
    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::integer("Validations", |policy, _| count(policy, &["spec", "validations"])),
            Column::new("ParamKind", |policy, _| param_kind(policy).into()),
            Column::AGE,
        ]
    }
}
