//! Roles and cluster roles, which look alike.

use meta::{FieldErrors, Value};
use registry::Strategy;

use crate::validation::rbac;

pub(crate) struct Role;

impl Strategy for Role {
    fn validate(&self, role: &Value, errors: &mut FieldErrors) {
        rbac::role(role, errors);
    }
}
