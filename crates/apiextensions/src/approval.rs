//! Groups of the Kubernetes community are protected: their definitions say where they were approved.

use meta::{Value, field::quote};

use crate::conditions::{API_APPROVAL, Condition};

const ANNOTATION: &str = "api-approved.kubernetes.io";
const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// What is to be said about a definition; nothing about those of unprotected groups.
pub(crate) fn judge(group: &str, definition: &Value) -> Option<Condition> {
    if !is_protected(group) {
        return None;
    }
    let annotation = definition.str_at(&["metadata", "annotations", ANNOTATION]);
    let quoted = quote(ANNOTATION);
    let (approved, reason, message) = if annotation.is_empty() {
        let why = format!("protected groups must have approval annotation {quoted}, {SEE}");
        (false, "MissingAnnotation", why)
    } else if annotation.starts_with("unapproved") {
        (false, "UnapprovedAnnotation", format!("not approved: {}", quote(annotation)))
    } else if is_url(annotation) {
        (true, "ApprovedAnnotation", format!("approved in {annotation}"))
    } else {
        let why = format!(
            "protected groups must have approval annotation {quoted} with either a URL or a reason \
             starting with \"unapproved\", {SEE}"
        );
        (false, "InvalidAnnotation", why)
    };
    Some(Condition::new(API_APPROVAL, approved, reason, message))
}

fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// A scheme and a host are all that is asked for.
fn is_url(text: &str) -> bool {
    text.parse::<http::Uri>().is_ok_and(|uri| uri.scheme().is_some() && uri.host().is_some())
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
            let judged = judge(group, &definition);
            let judged = judged.map(|c| format!("{} {}", c.status, c.reason)).unwrap_or_default();
            assert_eq!(judged, expected, "{group} {annotation}");
        }
    }
}
