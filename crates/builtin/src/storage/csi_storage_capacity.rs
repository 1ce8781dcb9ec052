//! CSI storage capacities.

use meta::{FieldErrors, Value};
use registry::Strategy;

use crate::validation::storage;

pub(crate) struct CsiStorageCapacity;

impl Strategy for CsiStorageCapacity {
    fn validate(&self, capacity: &Value, errors: &mut FieldErrors) {
        storage::capacity(capacity, errors);
    }

    fn validate_update(&self, capacity: &Value, old: &Value, errors: &mut FieldErrors) {
        storage::capacity_update(capacity, old, errors);
    }
}
