//! The condition `KubernetesAPIApprovalPolicyConformant`: definitions in `*.k8s.io` and
//! `*.kubernetes.io` need an annotation with their API approval.

use meta::Value;

use crate::{
    conditions::{API_APPROVAL, Condition},
    definition::{Approval, approval, is_protected},
};

/// The condition to set; None for groups that are not protected.
pub(crate) fn condition(group: &str, definition: &Value) -> Option<Condition> {
    if !is_protected(group) {
        return None;
    }
    let (state, message) = approval(definition);
    let (approved, reason) = match state {
        Approval::Approved => (true, "ApprovedAnnotation"),
        Approval::Bypassed => (false, "UnapprovedAnnotation"),
        Approval::Missing => (false, "MissingAnnotation"),
        Approval::Invalid => (false, "InvalidAnnotation"),
    };
    Some(Condition::new(API_APPROVAL, approved, reason, message))
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn protected_groups_need_an_approval() {
        let cases = [
            ("example.com", "", ""),
            ("notk8s.io", "", ""),
            ("x.k8s.io", "", "False MissingAnnotation"),
            ("k8s.io", "unapproved, a test", "False UnapprovedAnnotation"),
            ("x.kubernetes.io", "https://github.com/x/pull/1", "True ApprovedAnnotation"),
            ("x.kubernetes.io", "yes", "False InvalidAnnotation"),
        ];
        for (group, annotation, expected) in cases {
            let definition =
                value!({"metadata": {"annotations": {"api-approved.kubernetes.io": (annotation)}}});
            let found = condition(group, &definition);
            let found = found.map(|c| format!("{} {}", c.status, c.reason)).unwrap_or_default();
            assert_eq!(found, expected, "{group} {annotation}");
        }
    }
}
