//! Validation of replica sets.

use meta::{FieldErrors, Value};

use crate::validation::{
    counts,
    cursor::Field,
    pod_spec::PodSpecOptions,
    workloads::{replica_set_status, selector, template_of_replica_set, update},
};

pub(crate) fn validate(object: &Value, options: PodSpecOptions, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    counts(&spec, &["replicas", "minReadySeconds"], errors);
    // Compat: upstream says `deployment` here too.
    if selector(&spec, "deployment", "invalid label selector", errors) {
        template_of_replica_set(&spec, options, errors);
    }
}

pub(crate) fn validate_update(
    object: &Value,
    old: &Value,
    options: PodSpecOptions,
    errors: &mut FieldErrors,
) {
    update(object, old, options, errors, validate, &["selector"]);
    replica_set_status(object, old, errors);
}
