//! Validation of namespaces.

use meta::{FieldErrors, Value, names::validate_finalizer_name};

use crate::validation::cursor::Field;

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let finalizers = spec.get("finalizers");
    for finalizer in finalizers.items() {
        namespace_finalizer(finalizer.str(), &finalizers, errors);
    }
}

/// `finalize` writes the finalizers, `status` the phase.
pub(crate) fn validate_subresource(subresource: &str, object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    if subresource == "finalize" {
        let spec = root.get("spec");
        for finalizer in spec.get("finalizers").items() {
            namespace_finalizer(finalizer.str(), &finalizer, errors);
        }
    } else {
        let status = root.get("status");
        let phase = status.get("Phase").with(root.value_at(&["status", "phase"]));
        if root.value_at(&["metadata", "deletionTimestamp"]).is_none() {
            if !phase.is("Active") {
                let why = "may only be 'Active' if `deletionTimestamp` is empty";
                phase.invalid_value(errors, phase.str(), why);
            }
        } else if !phase.is("Terminating") {
            let why = "may only be 'Terminating' if `deletionTimestamp` is not empty";
            phase.invalid_value(errors, phase.str(), why);
        }
    }
}

fn namespace_finalizer(name: &str, at: &Field<'_>, errors: &mut FieldErrors) {
    validate_finalizer_name(name, &at.path(), errors);
    if !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") {
        let why = "name is neither a standard finalizer name nor is it fully qualified";
        at.invalid_value(errors, name, why);
    }
}
