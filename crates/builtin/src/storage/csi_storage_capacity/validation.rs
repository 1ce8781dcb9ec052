//! Validation of CSI storage capacities.

use meta::{
    FieldErrors, Value,
    names::{is_dns1123_subdomain, validate_label_selector},
};

use crate::validation::{
    cursor::{Field, IMMUTABLE},
    pod_spec::quantity,
    workloads::show_selector,
};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let topology = root.get("nodeTopology");
    validate_label_selector(topology.value(), &topology.path(), errors);
    root.get("storageClassName").rule(errors, is_dns1123_subdomain);
    let amount = root.get("capacity");
    if let Some(value) = amount.value().and_then(quantity).filter(|value| value.sign().is_lt()) {
        let why = "must be greater than or equal to 0";
        amount.invalid_value(errors, value.to_string(), why);
    }
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(object, errors);
    let (root, old) = (Field::root(object), Field::root(old));
    let topology = root.get("nodeTopology");
    if topology.value() != old.get("nodeTopology").value() {
        topology.invalid_shown(errors, &show_selector(&topology), IMMUTABLE);
    }
    root.get("storageClassName").immutable(&old.get("storageClassName"), errors);
}
