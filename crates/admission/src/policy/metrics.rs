//! The metrics of policies, by kube-apiserver's names.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounterVec, Registry};

use crate::{
    expressions::OutOfBudget,
    webhook::{counter, histogram},
};

pub struct PolicyMetrics {
    validating: IntCounterVec,
    validating_seconds: HistogramVec,
    mutating: IntCounterVec,
    mutating_seconds: HistogramVec,
}

const BUCKETS: &[f64] = &[0.000_000_5, 0.001, 0.01, 0.1, 1.0];

impl Default for PolicyMetrics {
    fn default() -> Self {
        let validating = ["policy", "policy_binding", "error_type", "enforcement_action"];
        let mutating = ["policy", "policy_binding", "error_type"];
        Self {
            validating: counter(
                "apiserver_validating_admission_policy_check_total",
                "Checks by validating admission policies, by policy, binding and what was done.",
                &validating,
            ),
            validating_seconds: histogram(
                "apiserver_validating_admission_policy_check_duration_seconds",
                "How long the expressions of validating admission policies take.",
                &validating,
                BUCKETS,
            ),
            mutating: counter(
                "apiserver_mutating_admission_policy_check_total",
                "Mutations by mutating admission policies, by policy and binding.",
                &mutating,
            ),
            mutating_seconds: histogram(
                "apiserver_mutating_admission_policy_check_duration_seconds",
                "How long the expressions of mutating admission policies take.",
                &mutating,
                BUCKETS,
            ),
        }
    }
}

impl PolicyMetrics {
    pub(crate) fn register(&self, registry: &Registry) {
        for counter in [&self.validating, &self.mutating] {
            registry.register(Box::new(counter.clone())).expect("registered once");
        }
        for histogram in [&self.validating_seconds, &self.mutating_seconds] {
            registry.register(Box::new(histogram.clone())).expect("registered once");
        }
    }

    /// `action`: `allow`, `deny`, `audit` or `warn`.
    pub(super) fn validated(
        &self,
        policy: &str,
        binding: &str,
        error_type: &str,
        action: &str,
        elapsed: Duration,
    ) {
        let labels = [policy, binding, error_type, action];
        self.validating.with_label_values(&labels).inc();
        self.validating_seconds.with_label_values(&labels).observe(elapsed.as_secs_f64());
    }

    pub(super) fn mutated(&self, policy: &str, binding: &str, error_type: &str, elapsed: Duration) {
        let labels = [policy, binding, error_type];
        self.mutating.with_label_values(&labels).inc();
        self.mutating_seconds.with_label_values(&labels).observe(elapsed.as_secs_f64());
    }
}

/// By the message, as upstream.
pub(super) fn error_type(message: &str) -> &'static str {
    if message.starts_with("compilation") {
        "compile_error"
    } else if message.starts_with(&OutOfBudget::TEXT[..BUDGET_PREFIX]) {
        "out_of_budget"
    } else {
        "invalid_error"
    }
}

/// `validation failed due to running out of cost budget`.
const BUDGET_PREFIX: usize = 51;
