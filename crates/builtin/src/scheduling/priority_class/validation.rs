//! Validation of priority classes.

use meta::{FieldErrors, Value};

use crate::validation::{cursor::Field, pod_spec::preemption_policy};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let metadata = root.get("metadata");
    let (name, value) = (metadata.get("name"), root.get("value").int_or_zero());
    if name.str().starts_with("system-") {
        if let Some(why) = system_class_error(name.str(), value, root.get("globalDefault").bool()) {
            let why = format!(
                "priority class names with 'system-' prefix are reserved for system use only. \
                 error: {why}"
            );
            name.forbidden(errors, &why);
        }
    } else if value > 1_000_000_000 {
        let why = "maximum allowed value of a user defined priority is 1000000000";
        root.get("value").forbidden(errors, why);
    }
    preemption_policy(&root.get("preemptionPolicy"), errors);
}

/// There are two classes of the system's own.
pub(crate) fn system_priority(name: &str) -> Option<i64> {
    match name {
        "system-node-critical" => Some(2_000_001_000),
        "system-cluster-critical" => Some(2_000_000_000),
        _ => None,
    }
}

fn system_class_error(name: &str, value: i64, is_default: bool) -> Option<String> {
    let Some(known) = system_priority(name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if value != known {
        return Some(format!("value of {name} PriorityClass must be {known}"));
    }
    is_default.then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (root, old) = (Field::root(object), Field::root(old));
    if root.get("value").int_or_zero() != old.get("value").int_or_zero() {
        root.get("value").forbidden(errors, "may not be changed in an update.");
    }
    root.get("preemptionPolicy").immutable(&old.get("preemptionPolicy"), errors);
}
