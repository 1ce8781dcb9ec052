//! Validation of CSI drivers.

use std::collections::BTreeSet;

use meta::{FieldErrors, Value};

use crate::validation::cursor::Field;

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    spec.get("fsGroupPolicy").one_of(errors, &["File", "None", "ReadWriteOnceWithFSType"]);
    let requests = spec.get("tokenRequests");
    let mut audiences = BTreeSet::new();
    for request in requests.items() {
        let (audience, seconds) = (request.get("audience"), request.get("expirationSeconds"));
        if !audiences.insert(audience.str().to_owned()) {
            errors.duplicate(audience.path(), audience.str());
            continue;
        }
        if seconds.int().is_some_and(|seconds| seconds < 600) {
            seconds.invalid(errors, "may not specify a duration less than 10 minutes");
        }
        if seconds.int_or_zero() > 1 << 32 {
            seconds.invalid(errors, "may not specify a duration larger than 2^32 seconds");
        }
    }
    let modes = spec.get("volumeLifecycleModes");
    for mode in modes.items() {
        if !matches!(mode.str(), "Persistent" | "Ephemeral") {
            errors.not_supported(modes.path(), mode.str(), &["Persistent", "Ephemeral"]);
        }
    }
    let period = spec.get("nodeAllocatableUpdatePeriodSeconds");
    if period.int().is_some_and(|period| period < 10) {
        period.invalid(errors, "must be greater than or equal to 10 seconds");
    }
    let in_secrets = spec.get("serviceAccountTokenInSecrets");
    if in_secrets.is_set() && requests.is_empty() {
        let why = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        in_secrets.invalid(errors, why);
    }
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(object, errors);
    let (root, old) = (Field::root(object), Field::root(old));
    let (spec, before) = (root.get("spec"), old.get("spec"));
    // Compat: upstream has another name for this field.
    let attach = spec.get("attachedRequired").with(spec.value_at(&["attachRequired"]));
    attach.immutable(&before.get("attachRequired"), errors);
    spec.get("volumeLifecycleModes").immutable(&before.get("volumeLifecycleModes"), errors);
}
