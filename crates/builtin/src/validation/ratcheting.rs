//! Rules that came later than some of the objects they are about. An object that broke one
//! before it came may go on breaking it: whoever changes something else is not asked to mend it first.

use meta::{FieldErrors, Value, field::FieldError};

/// Takes back what `errors` say about an update of `old` if that already broke the same rule.
/// `validate` is what new objects have to pass.
pub(crate) fn ratchet(
    old: &Value,
    validate: fn(&Value, &mut FieldErrors),
    errors: &mut FieldErrors,
) {
    any_selinux_policy(old, errors);
    if !errors.0.iter().any(|error| RATCHETED_RULES.iter().any(|rule| rule.is_about(error))) {
        return;
    }
    let mut before = FieldErrors::default();
    validate(old, &mut before);
    let is_broken = |rule: &&RatchetedRule| before.0.iter().any(|error| rule.is_about(error));
    let broken: Vec<&RatchetedRule> = RATCHETED_RULES.iter().filter(is_broken).collect();
    errors.0.retain(|error| !broken.iter().any(|rule| rule.is_about(error)));
}

/// Pods that have a policy already may have any.
fn any_selinux_policy(old: &Value, errors: &mut FieldErrors) {
    let was_there = |error: &FieldError| {
        let path: Vec<&str> = error.field.split('.').collect();
        error.field.ends_with(".seLinuxChangePolicy") && old.at(&path).is_some()
    };
    let chosen = "Unsupported value: \"MountOption\"";
    errors.0.retain(|error| !(error.message.starts_with(chosen) && was_there(error)));
    for error in errors.0.iter_mut().filter(|error| was_there(error)) {
        error.message =
            error.message.replace(": \"Recursive\"", ": \"MountOption\", \"Recursive\"");
    }
}

/// A rule, told by what it says.
struct RatchetedRule {
    /// Parts of the field's path.
    field: &'static [&'static str],
    message: &'static str,
}

impl RatchetedRule {
    fn is_about(&self, error: &FieldError) -> bool {
        self.field.iter().all(|part| error.field.contains(part))
            && error.message.contains(self.message)
    }
}

const RATCHETED_RULES: [RatchetedRule; 18] = [
    RatchetedRule { field: &[], message: "is not positive integer multiple of hugepages-" },
    RatchetedRule { field: &[".podAffinity.", ".matchExpressions[", ".values["], message: "" },
    RatchetedRule { field: &[".podAntiAffinity.", ".matchExpressions[", ".values["], message: "" },
    RatchetedRule { field: &[".nodeAffinity.required", ".values["], message: "" },
    RatchetedRule {
        field: &["topologySpreadConstraints[", ".labelSelector.", ".values["],
        message: "",
    },
    RatchetedRule {
        field: &["topologySpreadConstraints[", ".matchLabelKeys["],
        message: "exists in both",
    },
    RatchetedRule { field: &[".serviceAccountToken.path"], message: "must not" },
    RatchetedRule { field: &[".sysctls["], message: "may not be specified when 'host" },
    RatchetedRule { field: &[".volumeDevices"], message: "when `hostUsers` is false" },
    RatchetedRule { field: &["initContainers["], message: "for non-sidecar initContainers" },
    RatchetedRule { field: &["spec.selector.matchExpressions[", ".values["], message: "" },
    RatchetedRule { field: &[".dataSource.apiGroup"], message: "" },
    RatchetedRule { field: &[".dataSourceRef.apiGroup"], message: "" },
    RatchetedRule { field: &[".tls[", ".secretName"], message: "" },
    RatchetedRule { field: &["webhooks[", ".sideEffects"], message: "" },
    RatchetedRule {
        field: &["webhooks[", ".admissionReviewVersions"],
        message: "must include at least",
    },
    RatchetedRule { field: &["webhooks[", ".name"], message: "Duplicate value" },
    RatchetedRule { field: &["webhooks[", "elector.matchExpressions[", ".values["], message: "" },
];

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn what_was_broken_before_may_stay_broken() {
        let pod = |size: &str, name: &str| {
            value!({"spec": {"containers": [{
                "name": (name),
                "image": "i",
                "imagePullPolicy": "Always",
                "terminationMessagePolicy": "File",
                "resources": {
                    "limits": {"cpu": "1", "hugepages-2Mi": (size)},
                    "requests": {"cpu": "1", "hugepages-2Mi": (size)},
                },
            }], "restartPolicy": "Always", "dnsPolicy": "Default"}})
        };
        let check = |new: &Value, old: &Value| {
            let mut errors = FieldErrors::default();
            crate::validation::pod::validate(new, &mut errors);
            ratchet(old, crate::validation::pod::validate, &mut errors);
            errors.to_string()
        };
        let (fits, odd) = (pod("2Mi", "a"), pod("3Mi", "a"));
        assert!(check(&odd, &fits).contains("is not positive integer multiple of hugepages-2Mi"));
        assert_eq!(check(&odd, &odd), "[]");
        // Nothing else is forgiven.
        assert!(check(&pod("3Mi", "A b"), &odd).starts_with("spec.containers[0].name: Invalid"));
    }
}
