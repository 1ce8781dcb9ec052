//! Rules that came later than some of the objects they are about. An object that broke one
//! before it came may go on breaking it: whoever changes something else is not asked to mend it first.

use meta::{FieldErrors, Value, field::FieldError};

/// Takes back what `errors` say about an update of `old` if that already broke the same rule.
/// `validate` is what new objects have to pass.
pub(crate) fn forgive(
    old: &Value,
    validate: fn(&Value, &mut FieldErrors),
    errors: &mut FieldErrors,
) {
    any_selinux_policy(old, errors);
    if !errors.0.iter().any(|error| LATER.iter().any(|rule| rule.is_about(error))) {
        return;
    }
    let mut before = FieldErrors::default();
    validate(old, &mut before);
    let is_broken = |rule: &&Later| before.0.iter().any(|error| rule.is_about(error));
    let broken: Vec<&Later> = LATER.iter().filter(is_broken).collect();
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
struct Later {
    /// Parts of the field's path.
    field: &'static [&'static str],
    message: &'static str,
}

impl Later {
    fn is_about(&self, error: &FieldError) -> bool {
        self.field.iter().all(|part| error.field.contains(part))
            && error.message.contains(self.message)
    }
}

const LATER: [Later; 18] = [
    Later { field: &[], message: "is not positive integer multiple of hugepages-" },
    Later { field: &[".podAffinity.", ".matchExpressions[", ".values["], message: "" },
    Later { field: &[".podAntiAffinity.", ".matchExpressions[", ".values["], message: "" },
    Later { field: &[".nodeAffinity.required", ".values["], message: "" },
    Later { field: &["topologySpreadConstraints[", ".labelSelector.", ".values["], message: "" },
    Later { field: &["topologySpreadConstraints[", ".matchLabelKeys["], message: "exists in both" },
    Later { field: &[".serviceAccountToken.path"], message: "must not" },
    Later { field: &[".sysctls["], message: "may not be specified when 'host" },
    Later { field: &[".volumeDevices"], message: "when `hostUsers` is false" },
    Later { field: &["initContainers["], message: "for non-sidecar initContainers" },
    Later { field: &["spec.selector.matchExpressions[", ".values["], message: "" },
    Later { field: &[".dataSource.apiGroup"], message: "" },
    Later { field: &[".dataSourceRef.apiGroup"], message: "" },
    Later { field: &[".tls[", ".secretName"], message: "" },
    Later { field: &["webhooks[", ".sideEffects"], message: "" },
    Later { field: &["webhooks[", ".admissionReviewVersions"], message: "must include at least" },
    Later { field: &["webhooks[", ".name"], message: "Duplicate value" },
    Later { field: &["webhooks[", "elector.matchExpressions[", ".values["], message: "" },
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
            forgive(old, crate::validation::pod::validate, &mut errors);
            errors.to_string()
        };
        let (fits, odd) = (pod("2Mi", "a"), pod("3Mi", "a"));
        assert!(check(&odd, &fits).contains("is not positive integer multiple of hugepages-2Mi"));
        assert_eq!(check(&odd, &odd), "[]");
        // Nothing else is forgiven.
        assert!(check(&pod("3Mi", "A b"), &odd).starts_with("spec.containers[0].name: Invalid"));
    }
}
