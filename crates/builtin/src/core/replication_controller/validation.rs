//! Validation of replication controllers.

use meta::{FieldErrors, Value, selector::LabelSelector};

use crate::validation::{
    counts,
    cursor::Field,
    pod_spec::PodSpecOptions,
    pod_template::{self, runs_forever},
    workloads::{replica_set_status, template_labels, update},
};

pub(crate) fn validate(object: &Value, options: PodSpecOptions, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    counts(&spec, &["minReadySeconds"], errors);
    spec.get("selector").require(errors);
    spec.get("replicas").non_negative(errors);
    let template = spec.get("template");
    if !template.is_set() {
        return template.required(errors, "");
    }
    if let Some(selector) = spec.value_at(&["selector"]) {
        template_labels(&template, &LabelSelector::from_labels(selector), errors);
    }
    pod_template::validate(&template, options, errors);
    runs_forever(&template, "ReplicationController", errors);
}

pub(crate) fn validate_update(
    object: &Value,
    old: &Value,
    options: PodSpecOptions,
    errors: &mut FieldErrors,
) {
    update(object, old, options, errors, validate, &[]);
    replica_set_status(object, old, errors);
}
