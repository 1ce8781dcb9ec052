//! Impersonation, by kube-apiserver's names. Compat: counted where constrained impersonation is on.

use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

/// Attempts, and the checks that they take.
pub(crate) struct ImpersonationMetrics {
    attempts: IntCounterVec,
    attempt_durations: HistogramVec,
    checks: IntCounterVec,
    check_durations: HistogramVec,
}

const LABELS: [&str; 2] = ["mode", "decision"];

impl ImpersonationMetrics {
    pub(crate) fn register(registry: &Registry) -> Self {
        let buckets = prometheus::exponential_buckets(0.001, 2.0, 15).expect("valid buckets");
        let counter = |name: &str, help: &str| {
            let counter = IntCounterVec::new(Opts::new(name, help), &LABELS).expect("valid names");
            registry.register(Box::new(counter.clone())).expect("registered once");
            counter
        };
        let histogram = |name: &str, help: &str| {
            let options = HistogramOpts::new(name, help).buckets(buckets.clone());
            let histogram = HistogramVec::new(options, &LABELS).expect("valid names");
            registry.register(Box::new(histogram.clone())).expect("registered once");
            histogram
        };
        Self {
            attempts: counter(
                "apiserver_impersonation_attempts_total",
                "Total number of impersonation attempts split by mode and decision.",
            ),
            attempt_durations: histogram(
                "apiserver_impersonation_attempts_duration_seconds",
                "Latency of impersonation attempts in seconds split by mode and decision.",
            ),
            checks: counter(
                "apiserver_impersonation_authorization_attempts_total",
                "Total number of authorization checks made by the impersonation handler split by \
                 mode and decision.",
            ),
            check_durations: histogram(
                "apiserver_impersonation_authorization_attempts_duration_seconds",
                "Latency of authorization checks made by the impersonation handler in seconds split \
                 by mode and decision.",
            ),
        }
    }

    /// `constraint` is the verb of the mode that allowed it; None: it was refused.
    pub(crate) fn attempted(&self, constraint: Option<&str>, took: Duration) {
        let labels = match constraint {
            None => ["", "denied"],
            Some("") => ["legacy", "allowed"],
            Some(verb) => [mode(verb), "allowed"],
        };
        self.attempts.with_label_values(&labels).inc();
        self.attempt_durations.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// What was decided about one part of the other identity.
    pub(crate) fn checked(&self, verb: &str, allowed: bool, took: Duration) {
        let labels = [mode(verb), if allowed { "allowed" } else { "denied" }];
        self.checks.with_label_values(&labels).inc();
        self.check_durations.with_label_values(&labels).observe(took.as_secs_f64());
    }

    pub(crate) fn reset(&self) {
        self.attempts.reset();
        self.attempt_durations.reset();
        self.checks.reset();
        self.check_durations.reset();
    }
}

fn mode(verb: &str) -> &'static str {
    if verb == "impersonate" {
        return "legacy";
    }
    // `impersonate:MODE`, or `impersonate-on:MODE:VERB`.
    match verb.split(':').nth(1) {
        Some("associated-node") => "associated-node",
        Some("arbitrary-node") => "arbitrary-node",
        Some("serviceaccount") => "serviceaccount",
        Some("user-info") => "user-info",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_name_their_mode() {
        let cases = [
            ("impersonate", "legacy"),
            ("impersonate:user-info", "user-info"),
            ("impersonate-on:user-info:list", "user-info"),
            ("impersonate:associated-node", "associated-node"),
            ("impersonate-on:arbitrary-node:get", "arbitrary-node"),
            ("impersonate:serviceaccount", "serviceaccount"),
            ("impersonate:other", "unknown"),
            ("get", "unknown"),
        ];
        for (verb, expected) in cases {
            assert_eq!(mode(verb), expected, "{verb}");
        }
    }
}
