//! Validation of the kind PodTemplate.

use meta::{FieldErrors, Value};

use crate::validation::{
    cursor::Field, pod_spec::PodSpecOptions, pod_template, ratcheting::ratchet,
};

pub(crate) fn validate(template: &Value, options: PodSpecOptions, errors: &mut FieldErrors) {
    pod_template::validate(&Field::root(template).get("template"), options, errors);
}

pub(crate) fn validate_update(
    template: &Value,
    old: &Value,
    options: PodSpecOptions,
    errors: &mut FieldErrors,
) {
    validate(template, options.for_update(old.at(&["template", "spec"])), errors);
    ratchet(old, |old, errors| validate(old, options, errors), errors);
}
