//! Removes duplicate ownerReferences.

use std::collections::HashSet;

use meta::{Value, Warnings};

/// Drops duplicate owner references with a warning.
pub(crate) fn deduplicate(object: &mut Value, after_admission: bool, warnings: &Warnings) {
    let owners = object.at_mut(&["metadata", "ownerReferences"]).and_then(Value::as_array_mut);
    let Some(owners) = owners.filter(|owners| owners.len() > 1) else { return };
    // Equal references have the same JSON.
    let mut seen = HashSet::new();
    let mut dropped: Vec<String> = Vec::new();
    owners.retain(|owner| {
        let is_new = seen.insert(meta::json::to_string(owner));
        if !is_new {
            dropped.push(owner.str_at(&["uid"]).to_owned());
        }
        is_new
    });
    if !dropped.is_empty() {
        let when = if after_admission { " after mutating admission happens" } else { "" };
        warnings.add(format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner \
             references in 1.20+, and may reject such requests as early as 1.24; please fix your \
             requests; duplicate UID(s) observed: {}",
            dropped.join(", ")
        ));
    }
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn owners_that_are_the_same_are_named_once() {
        let (a, b) = (value!({"uid": "a", "name": "x"}), value!({"uid": "a", "name": "y"}));
        let mut object =
            value!({"metadata": {"ownerReferences": [(a.clone()), (b.clone()), (a.clone())]}});
        deduplicate(&mut object, false, &Warnings::default());
        assert_eq!(object, value!({"metadata": {"ownerReferences": [(a), (b)]}}));
    }
}
