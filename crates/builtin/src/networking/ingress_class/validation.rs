//! Validation of ingress classes.

use meta::{FieldErrors, Value, names::is_dns1123_label};

use crate::{
    networking::ingress::validation::typed_reference,
    validation::{
        cursor::{Field, IMMUTABLE},
        names::domain_prefixed_path,
    },
};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let controller = spec.get("controller");
    if controller.len() > 250 {
        errors.too_long(controller.path(), 250);
    }
    domain_prefixed_path(&controller, errors);
    let parameters = spec.get("parameters");
    if !parameters.is_set() {
        return;
    }
    typed_reference(&parameters, errors);
    let (scope, namespace) = (parameters.get("scope"), parameters.get("namespace"));
    match scope.str() {
        "Namespace" if !namespace.is_set() => {
            namespace.required(errors, "`parameters.scope` is set to 'Namespace'");
        }
        "Namespace" => namespace.rule(errors, is_dns1123_label),
        "Cluster" if namespace.is_set() => {
            namespace.forbidden(errors, "`parameters.scope` is set to 'Cluster'");
        }
        "Cluster" => {}
        _ => scope.not_supported(errors, &["Cluster", "Namespace"]),
    }
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (root, old) = (Field::root(object), Field::root(old));
    let (spec, before) = (root.get("spec"), old.get("spec"));
    let controller = spec.get("controller");
    if !controller.is(before.str_at(&["controller"])) {
        controller.invalid_value(errors, controller.str(), IMMUTABLE);
    }
    validate(object, errors);
}
