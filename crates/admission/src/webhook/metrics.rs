//! The metrics of webhooks and match conditions, by kube-apiserver's names.

use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, core::Collector};

use crate::{Operation, expressions::ConditionsOutcome};

pub struct WebhookMetrics {
    duration: HistogramVec,
    rejections: IntCounterVec,
    fail_open: IntCounterVec,
    requests: IntCounterVec,
    condition_errors: IntCounterVec,
    pub(crate) condition_exclusions: IntCounterVec,
    condition_seconds: HistogramVec,
}

const WEBHOOK_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
const CONDITION_BUCKETS: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];
const OF_CONDITION: &[&str] = &["name", "kind", "type", "operation"];

impl Default for WebhookMetrics {
    fn default() -> Self {
        Self {
            duration: histogram(
                "apiserver_admission_webhook_admission_duration_seconds",
                "How long admission webhooks take, by webhook, operation and type (validating or \
                 admit).",
                &["name", "type", "operation", "rejected"],
                WEBHOOK_BUCKETS,
            ),
            rejections: counter(
                "apiserver_admission_webhook_rejection_count",
                "Requests that admission webhooks rejected, with the kind of error and the code.",
                &["name", "type", "operation", "error_type", "rejection_code"],
            ),
            fail_open: counter(
                "apiserver_admission_webhook_fail_open_count",
                "Requests that were let through because a webhook failed.",
                &["name", "type"],
            ),
            requests: counter(
                "apiserver_admission_webhook_request_total",
                "Calls of admission webhooks, by code and whether the request was rejected.",
                &["name", "type", "operation", "code", "rejected"],
            ),
            condition_errors: counter(
                "apiserver_admission_match_condition_evaluation_errors_total",
                "Match conditions that failed, by what they belong to.",
                OF_CONDITION,
            ),
            condition_exclusions: counter(
                "apiserver_admission_match_condition_exclusions_total",
                "Requests that match conditions excluded, by what they belong to.",
                OF_CONDITION,
            ),
            condition_seconds: histogram(
                "apiserver_admission_match_condition_evaluation_seconds",
                "How long match conditions take, by what they belong to.",
                OF_CONDITION,
                CONDITION_BUCKETS,
            ),
        }
    }
}

pub(crate) fn counter(name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    IntCounterVec::new(Opts::new(name, help), labels).expect("a valid metric")
}

pub(crate) fn histogram(name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
    let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    HistogramVec::new(options, labels).expect("a valid metric")
}

/// How a call of a webhook ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observed<'a> {
    pub(crate) name: &'a str,
    /// `admit` or `validating`.
    pub(crate) stage: &'a str,
    pub(crate) operation: Operation,
    pub(crate) elapsed: Duration,
    pub(crate) code: u16,
    /// `calling_webhook_error`, `apiserver_internal_error` or `no_error`, if it led to a rejection.
    pub(crate) rejected: Option<&'a str>,
}

/// Larger codes are counted as this one, so that their number is bounded.
const CODE_MAX: u16 = 600;

impl WebhookMetrics {
    pub(crate) fn register(&self, registry: &Registry) {
        let counters = [
            &self.rejections,
            &self.fail_open,
            &self.requests,
            &self.condition_errors,
            &self.condition_exclusions,
        ];
        let counters =
            counters.into_iter().map(|own| -> Box<dyn Collector> { Box::new(own.clone()) });
        let histograms = [&self.duration, &self.condition_seconds].into_iter();
        let histograms = histograms.map(|own| -> Box<dyn Collector> { Box::new(own.clone()) });
        for collector in counters.chain(histograms) {
            registry.register(collector).expect("registered once");
        }
    }

    pub(crate) fn observe(&self, call: &Observed<'_>) {
        let operation = call.operation.as_str();
        let rejected = if call.rejected.is_some() { "true" } else { "false" };
        let code = call.code.min(CODE_MAX).to_string();
        let Observed { name, stage, .. } = *call;
        self.duration
            .with_label_values(&[name, stage, operation, rejected])
            .observe(call.elapsed.as_secs_f64());
        self.requests.with_label_values(&[name, stage, operation, &code, rejected]).inc();
        if let Some(error_type) = call.rejected {
            self.rejections.with_label_values(&[name, stage, operation, error_type, &code]).inc();
        }
    }

    /// `labels`: name, kind, type and operation.
    pub(crate) fn conditions_evaluated(
        &self,
        labels: &[&str; 4],
        outcome: &ConditionsOutcome,
        elapsed: Duration,
    ) {
        // A counter that was never raised is not shown.
        if outcome.errors > 0 {
            self.condition_errors.with_label_values(labels).inc_by(outcome.errors as u64);
        }
        self.condition_seconds.with_label_values(labels).observe(elapsed.as_secs_f64());
    }

    pub(crate) fn failed_open(&self, name: &str, stage: &str) {
        self.fail_open.with_label_values(&[name, stage]).inc();
    }
}
