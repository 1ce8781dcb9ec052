//! Metrics, by kube-apiserver's names.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use meta::AuditLevel;
use parking_lot::Mutex;
use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

#[derive(Clone, Debug)]
pub struct AuditMetrics {
    pub events: IntCounter,
    /// Requests that failed because their event could not be recorded (blocking-strict).
    pub rejected: IntCounter,
    errors: IntCounterVec,
    /// By level, in the order of `AuditLevel::ALL`.
    levels: [IntCounter; 4],
    /// When an error was last logged.
    logged_at: Arc<Mutex<Option<Instant>>>,
}

/// Errors are logged at most so often: a full queue refuses an event with every request.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

impl AuditMetrics {
    /// Metrics that are shown by a registry. Compat: they are there without a policy, too.
    pub fn register(registry: &Registry) -> Self {
        let one = |name: &str, help: &str| {
            let counter = IntCounter::new(name, help).expect("valid names");
            registry.register(Box::new(counter.clone())).expect("registered once");
            counter
        };
        let vec = |name: &str, help: &str, label: &str| {
            let counter = IntCounterVec::new(Opts::new(name, help), &[label]).expect("valid names");
            registry.register(Box::new(counter.clone())).expect("registered once");
            counter
        };
        let levels = vec(
            "apiserver_audit_level_total",
            "Counter of policy levels for audit events (1 per request).",
            "level",
        );
        Self {
            events: one(
                "apiserver_audit_event_total",
                "Counter of audit events generated and sent to the audit backend.",
            ),
            rejected: one(
                "apiserver_audit_requests_rejected_total",
                "Counter of apiserver requests rejected due to an error in audit logging backend.",
            ),
            errors: vec(
                "apiserver_audit_error_total",
                "Counter of audit events that failed to be audited properly. Plugin identifies the \
                 plugin affected by the error.",
                "plugin",
            ),
            levels: AuditLevel::ALL.map(|level| levels.with_label_values(&[level.as_str()])),
            logged_at: Arc::default(),
        }
    }

    pub(crate) fn level(&self, level: AuditLevel) {
        self.levels[level as usize].inc();
    }

    /// Counts lost events, and logs them.
    pub(crate) fn failed(&self, plugin: &str, events: usize, why: &dyn std::fmt::Display) {
        self.errors.with_label_values(&[plugin]).inc_by(events as u64);
        let now = Instant::now();
        let mut logged_at = self.logged_at.lock();
        if logged_at.is_some_and(|logged_at| now.duration_since(logged_at) < LOG_INTERVAL) {
            return;
        }
        *logged_at = Some(now);
        tracing::error!("Error in audit plugin '{plugin}' affecting {events} audit events: {why}");
    }

    #[cfg(test)]
    pub(crate) fn errors(&self, plugin: &str) -> u64 {
        self.errors.with_label_values(&[plugin]).get()
    }
}
