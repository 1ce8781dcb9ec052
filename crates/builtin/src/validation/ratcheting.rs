//! Ratcheting: an update may keep what breaks a rule that is newer than the object, so that clients can
//! change other fields without mending this one first.

use meta::{FieldErrors, Value, field::RuleId};

use super::pod_spec::{
    DEVICES_WITHOUT_HOST_USERS, HUGE_PAGES_MULTIPLE, NODE_SELECTOR_VALUE,
    NON_SIDECAR_RESIZE_POLICY, POD_AFFINITY_SELECTOR_VALUE, POD_ANTI_AFFINITY_SELECTOR_VALUE,
    SYSCTL_OF_HOST_NAMESPACE, TOKEN_PATH, TOPOLOGY_SPREAD_SELECTOR_VALUE,
};
use crate::{
    admissionregistration::webhook_configuration::validation::{
        WEBHOOK_NAME_UNIQUE, WEBHOOK_REVIEW_VERSION_KNOWN, WEBHOOK_SELECTOR_VALUE,
        WEBHOOK_SIDE_EFFECTS,
    },
    core::persistent_volume_claim::validation::{DATA_SOURCE_API_GROUP, DATA_SOURCE_REF_API_GROUP},
    networking::ingress::validation::TLS_SECRET_NAME,
};

/// Removes the errors about an update of `old` whose rule `old` already broke.
/// `validate` is the validation of a new object.
pub(crate) fn ratchet(
    old: &Value,
    validate: impl FnOnce(&Value, &mut FieldErrors),
    errors: &mut FieldErrors,
) {
    if !errors.broken_rules().any(|rule| RATCHETED_RULES.contains(&rule)) {
        return;
    }
    let mut before = FieldErrors::default();
    validate(old, &mut before);
    let is_broken = |known: &&RuleId| before.broken_rules().any(|rule| rule == **known);
    let broken: Vec<RuleId> = RATCHETED_RULES.iter().filter(is_broken).copied().collect();
    errors.retain_rules(|rule| !broken.contains(&rule));
}

const RATCHETED_RULES: [RuleId; 17] = [
    HUGE_PAGES_MULTIPLE,
    POD_AFFINITY_SELECTOR_VALUE,
    POD_ANTI_AFFINITY_SELECTOR_VALUE,
    NODE_SELECTOR_VALUE,
    TOPOLOGY_SPREAD_SELECTOR_VALUE,
    TOKEN_PATH,
    SYSCTL_OF_HOST_NAMESPACE,
    DEVICES_WITHOUT_HOST_USERS,
    NON_SIDECAR_RESIZE_POLICY,
    SPEC_SELECTOR_VALUE,
    DATA_SOURCE_API_GROUP,
    DATA_SOURCE_REF_API_GROUP,
    TLS_SECRET_NAME,
    WEBHOOK_SIDE_EFFECTS,
    WEBHOOK_REVIEW_VERSION_KNOWN,
    WEBHOOK_NAME_UNIQUE,
    WEBHOOK_SELECTOR_VALUE,
];

/// The values of `spec.selector`, which most controllers and claims have.
pub(crate) const SPEC_SELECTOR_VALUE: RuleId = RuleId::new("spec selector value");

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;
    use crate::{core::pod::validation as pod_validation, validation::pod_spec::PodSpecOptions};

    fn validate(pod: &Value, errors: &mut FieldErrors) {
        pod_validation::validate(pod, PodSpecOptions::default(), errors);
    }

    fn check(new: &Value, old: &Value) -> String {
        let mut errors = FieldErrors::default();
        pod_validation::validate_update(new, old, PodSpecOptions::default(), &mut errors);
        errors.to_string()
    }

    fn pod(size: &str, name: &str) -> Value {
        value!({"spec": {"containers": [{
            "name": (name),
            "image": "i",
            "imagePullPolicy": "Always",
            "terminationMessagePolicy": "File",
            "resources": {
                "limits": {"cpu": "1", "hugepages-2Mi": (size)},
                "requests": {"cpu": "1", "hugepages-2Mi": (size)},
            },
        }], "restartPolicy": "Always", "dnsPolicy": "Default", "serviceAccountName": "default"}})
    }

    #[test]
    fn what_was_broken_before_may_stay_broken() {
        let (fits, odd) = (pod("2Mi", "a"), pod("3Mi", "a"));
        assert!(check(&odd, &fits).contains("is not positive integer multiple of hugepages-2Mi"));
        assert_eq!(check(&odd, &odd), "[]");
        // Other errors stay.
        let renamed = check(&pod("3Mi", "A b"), &odd);
        assert!(renamed.contains("spec.containers[0].name: Invalid"), "{renamed}");
        assert!(!renamed.contains("hugepages-2Mi: "), "{renamed}");
    }

    #[test]
    fn rewording_messages_and_paths_changes_no_decision() {
        let (fits, odd) = (pod("2Mi", "a"), pod("3Mi", "A b"));
        let scrambled = |object: &Value, errors: &mut FieldErrors| {
            validate(object, errors);
            for error in errors.iter_mut() {
                error.message = error.message.chars().rev().collect();
                error.field = "elsewhere".to_owned();
            }
        };
        let left = |old: &Value| {
            let mut errors = FieldErrors::default();
            scrambled(&odd, &mut errors);
            ratchet(old, scrambled, &mut errors);
            let mut plain = FieldErrors::default();
            validate(&odd, &mut plain);
            ratchet(old, validate, &mut plain);
            assert_eq!(errors.count(), plain.count());
            errors.count()
        };
        // Two sizes and a name are wrong; the name is no ratcheted rule.
        assert_eq!((left(&fits), left(&odd)), (3, 1));
    }

    #[test]
    fn rule_ids_are_unique() {
        for (at, rule) in RATCHETED_RULES.iter().enumerate() {
            assert!(!RATCHETED_RULES[..at].contains(rule), "{rule:?}");
        }
    }

    /// The path in this error is not that of the token, so a rule identified by its path never matched.
    #[test]
    fn a_token_path_that_was_let_in_may_stay() {
        let with_token = |path: &str| {
            let mut pod = pod("2Mi", "a");
            let volumes = value!([{"name": "v", "projected": {"sources": [
                {"serviceAccountToken": {"path": (path), "expirationSeconds": 3600i64}},
            ]}}]);
            pod.set_at(&["spec", "volumes"], volumes);
            pod
        };
        let (inside, outside) = (with_token("token"), with_token("a/../token"));
        assert!(check(&outside, &inside).contains("must not contain '..'"));
        assert_eq!(check(&outside, &outside), "[]");
    }

    #[test]
    fn a_pod_with_an_selinux_change_policy_may_have_any() {
        let with_policy = |policy: &str| {
            let mut pod = pod("2Mi", "a");
            pod.set_at(&["spec", "securityContext", "seLinuxChangePolicy"], policy);
            pod
        };
        let path = "spec.securityContext.seLinuxChangePolicy";
        let supported = |old: &Value, new: &str| {
            let text = check(&with_policy(new), old);
            text.split("supported values: ").nth(1).map(|rest| {
                assert!(text.contains(path), "{text}");
                rest.split(", spec").next().unwrap_or_default().trim_end_matches(']').to_owned()
            })
        };
        let recursive = with_policy("Recursive");
        assert_eq!(supported(&recursive, "MountOption"), None);
        let both = Some(r#""MountOption", "Recursive""#.to_owned());
        assert_eq!(supported(&recursive, "Other"), both);
        assert_eq!(supported(&pod("2Mi", "a"), "Other"), Some(r#""Recursive""#.to_owned()));
    }
}
