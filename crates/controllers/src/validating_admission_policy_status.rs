//! kube-controller-manager's validatingadmissionpolicy-status-controller: checks the expressions of
//! ValidatingAdmissionPolicies against the types of what they match, and says in their status what is
//! wrong.

use std::sync::Arc;

use meta::{ApiError, Value, value};

use crate::{
    ApiClient, Informer, InformerEvent, ResourceRef,
    informer::{BURST_WINDOW, RETRY_DELAY, drain_burst},
};

pub struct ValidatingAdmissionPolicyStatus {
    pub api: Arc<dyn ApiClient>,
    pub type_checker: Arc<dyn PolicyTypeChecker>,
}

/// Checks the types of a policy's expressions.
pub trait PolicyTypeChecker: Send + Sync + 'static {
    /// The fields whose expressions are wrong, and why.
    fn check(&self, policy: &Value) -> Vec<(String, String)>;
}

/// Compat: field manager of the status.
const MANAGER: &str = "validatingadmissionpolicy-status";

impl ValidatingAdmissionPolicyStatus {
    /// Runs until the server stops. `events` are events of ValidatingAdmissionPolicies.
    pub async fn run(self, mut events: impl Informer) {
        loop {
            match events.next().await {
                None => return,
                Some(InformerEvent::Object(_) | InformerEvent::Relisted) => {}
            }
            if drain_burst(&mut events, BURST_WINDOW).await.is_none() {
                return;
            }
            while let Err(error) = self.check_all().await {
                tracing::warn!("cannot check the types of admission policies yet: {error}");
                if drain_burst(&mut events, RETRY_DELAY).await.is_none() {
                    return;
                }
            }
        }
    }

    /// Checks every policy that has changed since it was checked.
    async fn check_all(&self) -> Result<(), ApiError> {
        let target = ResourceRef::cluster(
            "admissionregistration.k8s.io",
            "v1",
            "validatingadmissionpolicies",
        );
        for policy in self.api.list(&target).await? {
            let generation = policy.i64_at(&["metadata", "generation"]).unwrap_or_default();
            let observed = policy.i64_at(&["status", "observedGeneration"]).unwrap_or_default();
            if generation <= observed {
                continue;
            }
            let name = policy.str_at(&["metadata", "name"]);
            let warnings = self.type_checker.check(&policy).into_iter();
            let warnings = warnings.map(
                |(field_ref, warning)| value!({"fieldRef": (field_ref), "warning": (warning)}),
            );
            let mut checking = value!({});
            let warnings: Vec<Value> = warnings.collect();
            if !warnings.is_empty() {
                checking.set_at(&["expressionWarnings"], Value::Array(warnings));
            }
            let applied = value!({
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingAdmissionPolicy",
                // With the UID, so that apply does not recreate a policy that was deleted meanwhile.
                "metadata": {"name": (name), "uid": (policy.str_at(&["metadata", "uid"]))},
                "status": {"observedGeneration": (generation), "typeChecking": (checking)},
            });
            let status = ResourceRef { subresource: "status", ..target.clone() }.named(name);
            match self.api.apply(&status, &applied, MANAGER).await {
                Err(ApiError::NotFound { .. } | ApiError::Conflict { .. }) => {}
                done => drop(done?),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeClient;

    struct Complains;

    impl PolicyTypeChecker for Complains {
        fn check(&self, policy: &Value) -> Vec<(String, String)> {
            match policy.str_at(&["metadata", "name"]) {
                "wrong" => vec![("spec.validations[0].expression".into(), "no".into())],
                _ => Vec::new(),
            }
        }
    }

    #[tokio::test]
    async fn a_changed_policy_is_checked_once() {
        let policy = |name: &str, generation: i64, observed: i64| {
            let policy = value!({
                "metadata": {"name": (name), "uid": "u", "generation": (generation)},
                "status": {"observedGeneration": (observed)},
            });
            ("validatingadmissionpolicies", policy)
        };
        let fake =
            FakeClient::new([policy("fine", 2, 1), policy("wrong", 1, 0), policy("old", 3, 3)]);
        let controller = ValidatingAdmissionPolicyStatus {
            api: fake.clone(),
            type_checker: Arc::new(Complains),
        };
        controller.check_all().await.unwrap();
        let applied = fake.applied();
        let statuses: Vec<(&str, &Value)> = applied
            .iter()
            .map(|policy| (policy.str_at(&["metadata", "name"]), policy.get("status").unwrap()))
            .collect();
        let warned = value!({"expressionWarnings": [
            {"fieldRef": "spec.validations[0].expression", "warning": "no"},
        ]});
        let fine = value!({"observedGeneration": 2i64, "typeChecking": {}});
        let wrong = value!({"observedGeneration": 1i64, "typeChecking": (warned)});
        assert_eq!(statuses, [("fine", &fine), ("wrong", &wrong)]);
    }
}
