//! The conditions of a terminating namespace, worded as kube-controller-manager words them.

use std::collections::BTreeMap;

use meta::{Value, value};

/// What could not be deleted from a namespace, and why.
#[derive(Debug, Default)]
pub(super) struct RemainingContent {
    /// Group-versions whose discovery failed, and the error.
    pub(super) undiscovered: Vec<(String, String)>,
    /// Errors of deletions.
    pub(super) failed: Vec<String>,
    /// Remaining objects by `resource.group`.
    pub(super) remaining: BTreeMap<String, usize>,
    /// Remaining objects by finalizer.
    pub(super) finalizers: BTreeMap<String, usize>,
}

/// Type, and the reason and message of status False.
const CONDITIONS: [(&str, &str, &str); 5] = [
    (
        "NamespaceDeletionDiscoveryFailure",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    (
        "NamespaceFinalizersRemaining",
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
];

/// Updates the conditions of a namespace; returns whether anything changed.
pub(super) fn write_conditions(namespace: &mut Value, content: &RemainingContent) -> bool {
    let mut changed = false;
    let conditions = namespace.object_at_mut(&["status"]).entry("conditions");
    if conditions.as_array().is_none() {
        *conditions = Value::Array(Vec::new());
    }
    let Some(conditions) = conditions.as_array_mut() else { return false };
    for (name, ok_reason, ok_message) in CONDITIONS {
        let (status, reason, message) = match content.failure(name) {
            Some((reason, message)) => ("True", reason, message),
            None => ("False", ok_reason, ok_message.to_owned()),
        };
        let Some(old) = conditions.iter_mut().find(|old| old.str_at(&["type"]) == name) else {
            changed = true;
            conditions.push(value!({
                "type": (name),
                "status": (status),
                "lastTransitionTime": (meta::time::now()),
                "reason": (reason),
                "message": (message),
            }));
            continue;
        };
        if old.str_at(&["status"]) != status {
            old.set_at(&["lastTransitionTime"], meta::time::now());
        }
        for (field, new) in [("status", status), ("reason", reason), ("message", &message)] {
            if old.str_at(&[field]) != new {
                changed = true;
                old.set_at(&[field], new);
            }
        }
    }
    changed
}

impl RemainingContent {
    /// Reason and message of a condition whose status is True; None if it is False.
    fn failure(&self, condition: &str) -> Option<(&'static str, String)> {
        match condition {
            "NamespaceDeletionDiscoveryFailure" if !self.undiscovered.is_empty() => {
                let all =
                    self.undiscovered.iter().map(|(version, why)| format!("{version}: {why}"));
                let message = format!(
                    "Discovery failed for some groups, {} failing: unable to retrieve the \
                     complete list of server APIs: {}",
                    self.undiscovered.len(),
                    all.collect::<Vec<_>>().join(", ")
                );
                Some(("DiscoveryFailed", message))
            }
            "NamespaceDeletionContentFailure" if !self.failed.is_empty() => {
                let mut all = self.failed.clone();
                all.sort();
                let message = format!(
                    "Failed to delete all resource types, {} remaining: {}",
                    all.len(),
                    all.join(", ")
                );
                Some(("ContentDeletionFailed", message))
            }
            "NamespaceContentRemaining" if !self.remaining.is_empty() => {
                let counted = counted(&self.remaining, |name, count| {
                    format!("{name} has {count} resource instances")
                });
                Some(("SomeResourcesRemain", format!("Some resources are remaining: {counted}")))
            }
            "NamespaceFinalizersRemaining" if !self.finalizers.is_empty() => {
                let counted = counted(&self.finalizers, |name, count| {
                    format!("{name} in {count} resource instances")
                });
                let message =
                    format!("Some content in the namespace has finalizers remaining: {counted}");
                Some(("SomeFinalizersRemain", message))
            }
            _ => None,
        }
    }
}

fn counted(counts: &BTreeMap<String, usize>, say: impl Fn(&str, usize) -> String) -> String {
    counts.iter().map(|(name, count)| say(name, *count)).collect::<Vec<_>>().join(", ")
}
