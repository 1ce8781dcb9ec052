//! Removes duplicate ownerReferences.

use std::collections::HashSet;

use meta::{Value, Warnings, json};

/// Duplicates that the warning names; the rest is counted.
const NAMED_MAX: usize = 20;

/// Drops duplicate owner references with a warning.
pub(crate) fn deduplicate(object: &mut Value, after_admission: bool, warnings: &Warnings) {
    let owners = object.at_mut(&["metadata", "ownerReferences"]).and_then(Value::as_array_mut);
    let Some(owners) = owners.filter(|owners| owners.len() > 1) else { return };
    // By their text, so that thousands of owners are not compared with each other.
    let mut seen = HashSet::with_capacity(owners.len());
    let (mut dropped, mut more) = (Vec::new(), 0);
    owners.retain(|owner| {
        let is_new = seen.insert(json::to_string(owner));
        if !is_new && dropped.len() < NAMED_MAX {
            dropped.push(owner.str_at(&["uid"]).to_owned());
        } else if !is_new {
            more += 1;
        }
        is_new
    });
    if more > 0 {
        dropped.push(format!("and {more} more"));
    }
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
        assert_eq!(object, value!({"metadata": {"ownerReferences": [(a.clone()), (b)]}}));

        let warnings = Warnings::default();
        let many = Value::Array(vec![a.clone(); 8_000]);
        let mut object = value!({"metadata": {"ownerReferences": (many)}});
        deduplicate(&mut object, false, &warnings);
        assert_eq!(object, value!({"metadata": {"ownerReferences": [(a)]}}));
        let [text] = &warnings.take()[..] else { panic!("one warning") };
        assert!(text.ends_with(
            ": a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, and 7979 more"
        ));
    }
}
