//! Limit ranges.

mod validation;

use meta::{FieldErrors, Map, Value};
use registry::{Strategy, WriteContext};

use crate::defaulting::{SetDefault, fill_resources, round_resources};

pub(crate) struct LimitRange;

impl Strategy for LimitRange {
    fn default(&self, range: &mut Value) {
        for limit in range.object_at_mut(&["spec"]).each("limits") {
            if limit.get("type").and_then(Value::as_str) == Some("Container") {
                default_container_limit(limit);
            }
            round_resources(
                limit,
                &["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"],
            );
        }
    }

    fn prepare_for_create(&self, range: &mut Value, _cx: &WriteContext<'_>) {
        // Compat: the one kind that names itself.
        if range.str_at(&["metadata", "name"]).is_empty() {
            let name = range.str_at(&["metadata", "uid"]).to_owned();
            range.set_at(&["metadata", "name"], name);
        }
    }

    fn validate(&self, range: &Value, errors: &mut FieldErrors) {
        validation::validate(range, errors);
    }
}

/// A container that says nothing gets the most it may have, and asks for as much, or at least for the
/// least.
fn default_container_limit(limit: &mut Map) {
    fill_resources(limit, "default", "max");
    fill_resources(limit, "defaultRequest", "default");
    fill_resources(limit, "defaultRequest", "min");
}
