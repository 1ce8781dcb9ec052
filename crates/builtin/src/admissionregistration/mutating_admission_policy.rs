//! Mutating admission policies.

use registry::{Column, Strategy};

use super::policy_format::param_kind;
use crate::format::count;

pub(crate) struct MutatingAdmissionPolicy;

impl Strategy for MutatingAdmissionPolicy {
    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::integer("Mutations", |policy, _| count(policy, &["spec", "mutations"])),
            Column::new("ParamKind", |policy, _| param_kind(policy).into()),
            Column::AGE,
        ]
    }
}
