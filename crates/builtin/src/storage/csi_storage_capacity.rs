//! CSI storage capacities.

mod validation;

use meta::{FieldErrors, Value};
use registry::Strategy;

use crate::validation::cursor::Field;
use crate::warnings;

pub(crate) struct CsiStorageCapacity;

impl Strategy for CsiStorageCapacity {
    fn validate(&self, capacity: &Value, errors: &mut FieldErrors) {
        validation::validate(capacity, errors);
    }

    fn validate_update(&self, capacity: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(capacity, old, errors);
    }

    fn warnings(&self, _subresource: &str, capacity: &Value, _old: Option<&Value>) -> Vec<String> {
        warnings::label_selector(&Field::root(capacity).get("nodeTopology"))
    }
}
