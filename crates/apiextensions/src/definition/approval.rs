//! The annotation `api-approved.kubernetes.io`, required in groups of the Kubernetes project.

use meta::{FieldErrors, Value, field::path};

/// The annotation with the URL of the approval.
const APPROVED_ANNOTATION: &str = "api-approved.kubernetes.io";

/// The state of the annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Approval {
    Approved,
    /// `unapproved…`: deliberately without approval.
    Bypassed,
    Missing,
    Invalid,
}

/// Whether a group belongs to the Kubernetes project.
pub(crate) fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        group.strip_suffix(domain).is_some_and(|head| head.is_empty() || head.ends_with('.'))
    })
}

/// The approval of a definition, and kube-apiserver's message about it.
pub(crate) fn approval(definition: &Value) -> (Approval, String) {
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    let must = format!("protected groups must have approval annotation \"{APPROVED_ANNOTATION}\"");
    match definition.str_at(&["metadata", "annotations", APPROVED_ANNOTATION]) {
        "" => (Approval::Missing, format!("{must}, {see}")),
        text if text.starts_with("unapproved") => {
            (Approval::Bypassed, format!("not approved: {}", meta::field::quote(text)))
        }
        text if is_url_with_host(text) => (Approval::Approved, format!("approved in {text}")),
        _ => {
            let why = "with either a URL or a reason starting with \"unapproved\"";
            (Approval::Invalid, format!("{must} {why}, {see}"))
        }
    }
}

/// An unchanged approval is not validated again.
pub(super) fn check(definition: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    if !is_protected(definition.str_at(&["spec", "group"])) {
        return;
    }
    let (now, why) = approval(definition);
    if old.is_some_and(|old| approval(old).0 == now) {
        return;
    }
    let at = path("metadata").child("annotations").key(APPROVED_ANNOTATION);
    match now {
        Approval::Approved | Approval::Bypassed => {}
        Approval::Missing => errors.required(at, &why),
        Approval::Invalid => {
            let given = definition.str_at(&["metadata", "annotations", APPROVED_ANNOTATION]);
            errors.invalid(at, given, &why);
        }
    }
}

fn is_url_with_host(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let scheme_fits = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let clean = !text.bytes().any(|byte| byte < b' ' || byte == 0x7f) && !host.contains(' ');
    scheme_fits && clean && !host.is_empty()
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn an_approval_is_a_url_or_begins_with_unapproved() {
        let cases = [
            ("https://github.com/x", Approval::Approved),
            ("unapproved, experimental", Approval::Bypassed),
            ("", Approval::Missing),
            ("yes", Approval::Invalid),
            ("/path", Approval::Invalid),
        ];
        for (text, expected) in cases {
            let definition =
                value!({"metadata": {"annotations": {"api-approved.kubernetes.io": (text)}}});
            assert_eq!(approval(&definition).0, expected, "{text:?}");
        }
        let protected = ["k8s.io", "a.k8s.io", "kubernetes.io", "x.kubernetes.io"];
        assert!(protected.into_iter().all(is_protected));
        assert!(!["xk8s.io", "example.com"].into_iter().any(is_protected));
    }
}
