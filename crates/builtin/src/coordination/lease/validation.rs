//! Validation of leases.

use meta::{FieldErrors, Value, names::is_qualified_name};

use crate::validation::cursor::Field;

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let seconds = spec.get("leaseDurationSeconds");
    if seconds.int().is_some_and(|seconds| seconds <= 0) {
        seconds.invalid(errors, "must be greater than 0");
    }
    spec.get("leaseTransitions").non_negative(errors);
    let choice = spec.get("strategy");
    if choice.is_set() {
        strategy(&choice, errors);
    }
    let preferred = spec.get("preferredHolder");
    if !preferred.is_empty() && choice.is_empty() {
        preferred.forbidden(errors, "may only be specified if `strategy` is defined");
    }
}

pub(crate) const OLDEST_EMULATION_VERSION: &str = "OldestEmulationVersion";

/// How the holder is chosen. Others than ours have a domain.
pub(crate) fn strategy(choice: &Field<'_>, errors: &mut FieldErrors) {
    // Compat: upstream names the field twice.
    let place = choice.path().child("strategy");
    if !choice.str().contains('/') {
        if !choice.is(OLDEST_EMULATION_VERSION) {
            errors.not_supported(place, choice.str(), &[OLDEST_EMULATION_VERSION]);
        }
        return;
    }
    for why in is_qualified_name(choice.str()) {
        errors.invalid(&place, choice.str(), &why);
    }
}
