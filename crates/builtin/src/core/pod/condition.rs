//! Conditions that the server itself sets on pods.

use meta::{Value, time::Time};

/// Sets a condition; when it turns, it says since when.
pub(super) fn set_condition(pod: &mut Value, mut condition: Value) {
    let kind = condition.str_at(&["type"]).to_owned();
    let now = Time::now().to_rfc3339();
    let conditions = pod.object_at_mut(&["status"]).entry("conditions");
    if conditions.as_array().is_none() {
        *conditions = Value::Array(Vec::new());
    }
    let conditions = conditions.as_array_mut().expect("made an array above");
    let old = conditions.iter_mut().find(|condition| condition.str_at(&["type"]) == kind);
    let since = old.as_ref().filter(|old| old.str_at(&["status"]) == condition.str_at(&["status"]));
    let since = since.and_then(|old| old.get("lastTransitionTime").cloned());
    condition.set_at(&["lastTransitionTime"], since.unwrap_or_else(|| Value::from(now)));
    match old {
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
}
