//! Roles and cluster roles, which look alike.

mod validation;

use meta::{FieldErrors, Value};
use registry::Strategy;

pub(crate) struct Role;

impl Strategy for Role {
    fn validate(&self, role: &Value, errors: &mut FieldErrors) {
        validation::validate(role, errors);
    }
}
