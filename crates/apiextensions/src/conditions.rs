//! `status.conditions` of a definition.

use meta::{Value, value};

pub(crate) const NAMES_ACCEPTED: &str = "NamesAccepted";
pub(crate) const ESTABLISHED: &str = "Established";
pub(crate) const TERMINATING: &str = "Terminating";
pub(crate) const NON_STRUCTURAL_SCHEMA: &str = "NonStructuralSchema";
pub(crate) const API_APPROVAL: &str = "KubernetesAPIApprovalPolicyConformant";

const CONDITIONS: [&str; 2] = ["status", "conditions"];

/// A condition that a controller sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) ty: &'static str,
    /// `True`, `False` or `Unknown`
    pub(crate) status: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Condition {
    pub(crate) fn new(
        ty: &'static str,
        status: bool,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        let status = if status { "True" } else { "False" };
        Self { ty, status, reason, message: message.into() }
    }
}

pub(crate) fn find<'a>(definition: &'a Value, ty: &str) -> Option<&'a Value> {
    definition.items_at(&CONDITIONS).iter().find(|condition| condition.str_at(&["type"]) == ty)
}

pub(crate) fn is_true(definition: &Value, ty: &str) -> bool {
    find(definition, ty).is_some_and(|condition| condition.str_at(&["status"]) == "True")
}

/// Sets a condition; `lastTransitionTime` changes only with its status.
pub(crate) fn set(definition: &mut Value, condition: &Condition, now: &str) {
    let Condition { ty, status, reason, message } = condition;
    let mut since = now.to_owned();
    if let Some(old) = find(definition, ty)
        && old.str_at(&["status"]) == *status
        && !old.str_at(&["lastTransitionTime"]).is_empty()
    {
        old.str_at(&["lastTransitionTime"]).clone_into(&mut since);
    }
    let written = value!({
        "type": (*ty),
        "status": (*status),
        "lastTransitionTime": (since),
        "reason": (*reason),
        "message": (message.as_str()),
    });
    let mut conditions = definition.items_at(&CONDITIONS).to_vec();
    match conditions.iter_mut().find(|known| known.str_at(&["type"]) == *ty) {
        Some(known) => *known = written,
        None => conditions.push(written),
    }
    definition.set_at(&CONDITIONS, Value::Array(conditions));
}

pub(crate) fn remove(definition: &mut Value, ty: &str) {
    if find(definition, ty).is_none() {
        return;
    }
    let kept = definition.items_at(&CONDITIONS).iter();
    let kept: Vec<Value> = kept.filter(|known| known.str_at(&["type"]) != ty).cloned().collect();
    definition.set_at(&CONDITIONS, Value::Array(kept));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_changes_with_the_status_only() {
        let mut definition = Value::object();
        let since = |definition: &Value| {
            find(definition, ESTABLISHED).map(|c| c.str_at(&["lastTransitionTime"]).to_owned())
        };
        let steps = [(false, "a", "1"), (false, "b", "1"), (true, "b", "3"), (true, "c", "3")];
        for (at, (status, reason, expected)) in (1..).zip(steps) {
            let condition = Condition::new(ESTABLISHED, status, reason, "");
            set(&mut definition, &condition, &at.to_string());
            assert_eq!(since(&definition).as_deref(), Some(expected));
        }
        assert!(is_true(&definition, ESTABLISHED));
        remove(&mut definition, ESTABLISHED);
        assert!(find(&definition, ESTABLISHED).is_none());
    }
}
