//! The policy and the backends together: what the handler chain asks.

use std::{sync::Arc, time::Duration};

use background::Tasks;
use client::Dial;
use meta::{RequestInfo, User};

use crate::{
    backend::{Backend, Handed},
    event::Event,
    metrics::AuditMetrics,
    options::Options,
    policy::{Policy, RequestPolicy},
};

pub struct Auditor {
    policy: Policy,
    backends: Vec<Arc<Backend>>,
    pub metrics: AuditMetrics,
}

impl Auditor {
    /// Loads the policy and opens the backends. None: without a policy, or without a backend, nothing
    /// is recorded. Has to be called within a tokio runtime.
    pub fn start(
        options: &Options,
        metrics: AuditMetrics,
        tasks: &Tasks,
    ) -> Result<Option<Arc<Self>>, String> {
        Self::start_with(options, metrics, None, tasks)
    }

    /// The same, with a way of its own to the webhook.
    pub fn start_with(
        options: &Options,
        metrics: AuditMetrics,
        webhook_dial: Option<Arc<dyn Dial>>,
        tasks: &Tasks,
    ) -> Result<Option<Arc<Self>>, String> {
        let policy = match &options.policy_file {
            None => None,
            Some(file) => Some(
                Policy::load(file).map_err(|why| format!("loading audit policy file: {why}"))?,
            ),
        };
        let Some(policy) = policy else {
            for (used, name) in [
                (!options.log.path.is_empty(), "log"),
                (options.webhook.config_file.is_some(), "webhook"),
            ] {
                if used {
                    tracing::warn!(
                        "No audit policy file provided, no events will be recorded for {name} backend"
                    );
                }
            }
            return Ok(None);
        };
        let mut backends = Vec::new();
        if !options.log.path.is_empty() {
            backends.push(Arc::new(Backend::log(&options.log, &metrics, tasks)?));
        }
        if let Some(file) = &options.webhook.config_file {
            backends.push(Arc::new(Backend::webhook(
                file,
                &options.webhook,
                &metrics,
                webhook_dial,
                tasks,
            )?));
        }
        if backends.is_empty() {
            tracing::warn!(
                "--audit-policy-file has no effect without --audit-log-path or \
                 --audit-webhook-config-file"
            );
            return Ok(None);
        }
        Ok(Some(Arc::new(Self { policy, backends, metrics })))
    }

    /// What the policy says about a request; counted once per request.
    pub fn evaluate(&self, user: Option<&User>, info: &RequestInfo) -> RequestPolicy {
        let found = self.policy.evaluate(user, info);
        self.metrics.level(found.level);
        found
    }

    /// Hands an event to all backends.
    pub fn process(&self, event: &Event) -> Processed {
        self.metrics.events.inc();
        let mut processed = Processed { stored: true, waiting: Vec::new() };
        for backend in &self.backends {
            match backend.hand_over(event) {
                Handed::Done => {}
                Handed::Failed => processed.stored = false,
                Handed::Waiting(bytes) => processed.waiting.push((backend.clone(), bytes)),
            }
        }
        processed
    }

    /// Called when the last request has been answered.
    pub async fn flush(&self, within: Duration) {
        let flushed = self.backends.iter().map(|backend| {
            let backend = backend.clone();
            tokio::spawn(async move { backend.flush(within).await })
        });
        for backend in flushed.collect::<Vec<_>>() {
            let _ = backend.await;
        }
    }
}

/// An event on its way. Backends in mode blocking may still have to be waited for.
#[must_use]
pub struct Processed {
    stored: bool,
    waiting: Vec<(Arc<Backend>, Vec<u8>)>,
}

impl Processed {
    /// Waits for all backends. False: a backend in mode blocking-strict has failed.
    pub async fn stored(self) -> bool {
        let mut stored = self.stored;
        for (backend, bytes) in self.waiting {
            stored &= backend.send(bytes).await;
        }
        stored
    }

    /// The same, but not beyond `deadline`: after that the event is sent in the background, and
    /// counts as not stored.
    pub async fn stored_by(self, deadline: Option<tokio::time::Instant>) -> bool {
        let Some(deadline) = deadline.filter(|_| !self.waiting.is_empty()) else {
            return self.stored().await;
        };
        // A task of its own, which the deadline does not end.
        let sending = tokio::spawn(self.stored());
        matches!(tokio::time::timeout_at(deadline, sending).await, Ok(Ok(true)))
    }

    /// For the end of a stream, where nothing waits: backends get the event in the background.
    pub fn detach(self) {
        if self.waiting.is_empty() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                self.stored().await;
            });
        }
    }
}

#[cfg(test)]
mod tests;
