//! Metrics of configuration reloads, JWT authenticators and authorizers, by kube-apiserver's names.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use prometheus::{
    GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry,
};
use sha2::{Digest as _, Sha256};

/// All of them; clones count in the same place.
#[derive(Clone)]
pub struct Metrics {
    /// Compat: every API server of a cluster has its own series.
    server_hash: Arc<str>,
    authentication: Reloads,
    authorization: Reloads,
    jwt_latency: HistogramVec,
    jwks_fetched: GaugeVec,
    jwks_info: IntGaugeVec,
    pub(crate) token_requests: IntCounterVec,
    pub(crate) token_request_duration: HistogramVec,
    pub(crate) token_fetches: IntCounterVec,
    pub(crate) token_fetches_active: IntGaugeVec,
    pub(crate) decisions: IntCounterVec,
    pub(crate) webhook_evaluations: IntCounterVec,
    pub(crate) webhook_duration: HistogramVec,
    pub(crate) webhook_fail_open: IntCounterVec,
    pub(crate) match_condition_errors: IntCounterVec,
    pub(crate) match_condition_exclusions: IntCounterVec,
    pub(crate) match_condition_seconds: HistogramVec,
    pub(crate) service_accounts: TokenCounters,
}

/// Uses of service account tokens.
#[derive(Clone)]
pub(crate) struct TokenCounters {
    pub(crate) legacy: IntCounter,
    pub(crate) legacy_manual: IntCounter,
    pub(crate) legacy_auto: IntCounter,
    pub(crate) legacy_auto_invalid: IntCounter,
    pub(crate) stale: IntCounter,
    pub(crate) valid: IntCounter,
}

impl TokenCounters {
    fn new() -> Self {
        let counter = |name: &str, help: &str| {
            IntCounter::new(format!("serviceaccount_{name}"), help).expect("a valid name")
        };
        Self {
            legacy: counter("legacy_tokens_total", "Cumulative legacy service account tokens used"),
            legacy_manual: counter(
                "legacy_manual_token_uses_total",
                "Cumulative manually created legacy tokens used",
            ),
            legacy_auto: counter(
                "legacy_auto_token_uses_total",
                "Cumulative auto-generated legacy tokens used",
            ),
            legacy_auto_invalid: counter(
                "invalid_legacy_auto_token_uses_total",
                "Cumulative invalid auto-generated legacy tokens used",
            ),
            stale: counter(
                "stale_tokens_total",
                "Cumulative stale projected service account tokens used",
            ),
            valid: counter(
                "valid_tokens_total",
                "Cumulative valid projected service account tokens used",
            ),
        }
    }

    fn all(&self) -> [&IntCounter; 6] {
        [
            &self.legacy,
            &self.legacy_manual,
            &self.legacy_auto,
            &self.legacy_auto_invalid,
            &self.stale,
            &self.valid,
        ]
    }
}

#[derive(Clone)]
struct Reloads {
    total: IntCounterVec,
    last: GaugeVec,
    info: IntGaugeVec,
    /// The hash that `info` has now.
    hash: Arc<Mutex<String>>,
}

/// Of one configuration file.
#[derive(Clone)]
pub(crate) struct ReloadMetrics {
    reloads: Reloads,
    server_hash: Arc<str>,
}

const DURATIONS: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

impl Metrics {
    /// `server` is the identity of this API server.
    pub fn new(server: &str) -> Self {
        let counter = |name: &str, help: &str, labels: &[&str]| {
            IntCounterVec::new(Opts::new(name, help), labels).expect("a valid name")
        };
        let histogram = |name: &str, help: &str, labels: &[&str]| {
            let options = HistogramOpts::new(name, help).buckets(DURATIONS.to_vec());
            HistogramVec::new(options, labels).expect("a valid name")
        };
        Self {
            server_hash: hash(server.as_bytes()).into(),
            authentication: Reloads::new("authentication"),
            authorization: Reloads::new("authorization"),
            jwt_latency: histogram(
                "apiserver_authentication_jwt_authenticator_latency_seconds",
                "Latency of jwt authentication operations in seconds, without cached tokens.",
                &["jwt_issuer_hash", "result"],
            ),
            jwks_fetched: GaugeVec::new(
                Opts::new(
                    "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds",
                    "Timestamp of the last successful or failed JWKS fetch.",
                ),
                &["apiserver_id_hash", "jwt_issuer_hash", "result"],
            )
            .expect("a valid name"),
            jwks_info: IntGaugeVec::new(
                Opts::new(
                    "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info",
                    "The hash of the last JWKS that was fetched.",
                ),
                &["apiserver_id_hash", "hash", "jwt_issuer_hash"],
            )
            .expect("a valid name"),
            token_requests: counter(
                "authentication_token_cache_request_total",
                "Requests for the user of a token, by whether it was remembered.",
                &["status"],
            ),
            token_request_duration: histogram(
                "authentication_token_cache_request_duration_seconds",
                "Time to find the user of a token.",
                &["status"],
            ),
            token_fetches: counter(
                "authentication_token_cache_fetch_total",
                "Look-ups of tokens that were not remembered.",
                &["status"],
            ),
            token_fetches_active: IntGaugeVec::new(
                Opts::new(
                    "authentication_token_cache_active_fetch_count",
                    "Look-ups under way, and requests that wait for one.",
                ),
                &["status"],
            )
            .expect("a valid name"),
            decisions: counter(
                "apiserver_authorization_decisions_total",
                "Total number of terminal decisions made by an authorizer.",
                &["decision", "name", "type"],
            ),
            webhook_evaluations: counter(
                "apiserver_authorization_webhook_evaluations_total",
                "Round-trips to authorization webhooks.",
                &["name", "result"],
            ),
            webhook_duration: histogram(
                "apiserver_authorization_webhook_duration_seconds",
                "Request latency of authorization webhooks in seconds.",
                &["name", "result"],
            ),
            webhook_fail_open: counter(
                "apiserver_authorization_webhook_evaluations_fail_open_total",
                "NoOpinion results due to webhook timeout or error.",
                &["name", "result"],
            ),
            match_condition_errors: counter(
                "apiserver_authorization_match_condition_evaluation_errors_total",
                "Total number of errors when a match condition was evaluated.",
                &["name", "type"],
            ),
            match_condition_exclusions: counter(
                "apiserver_authorization_match_condition_exclusions_total",
                "Total number of exclusions because a match condition was false.",
                &["name", "type"],
            ),
            match_condition_seconds: histogram(
                "apiserver_authorization_match_condition_evaluation_seconds",
                "Time spent evaluating match conditions in seconds.",
                &["name", "type"],
            ),
            service_accounts: TokenCounters::new(),
        }
    }

    pub fn register(&self, registry: &Registry) -> Result<(), String> {
        let mut collectors: Vec<Box<dyn prometheus::core::Collector>> = vec![
            Box::new(self.jwt_latency.clone()),
            Box::new(self.jwks_fetched.clone()),
            Box::new(self.jwks_info.clone()),
            Box::new(self.token_requests.clone()),
            Box::new(self.token_request_duration.clone()),
            Box::new(self.token_fetches.clone()),
            Box::new(self.token_fetches_active.clone()),
            Box::new(self.decisions.clone()),
            Box::new(self.webhook_evaluations.clone()),
            Box::new(self.webhook_duration.clone()),
            Box::new(self.webhook_fail_open.clone()),
            Box::new(self.match_condition_errors.clone()),
            Box::new(self.match_condition_exclusions.clone()),
            Box::new(self.match_condition_seconds.clone()),
        ];
        for counter in self.service_accounts.all() {
            collectors.push(Box::new(counter.clone()));
        }
        for reloads in [&self.authentication, &self.authorization] {
            collectors.push(Box::new(reloads.total.clone()));
            collectors.push(Box::new(reloads.last.clone()));
            collectors.push(Box::new(reloads.info.clone()));
        }
        for collector in collectors {
            registry.register(collector).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    pub(crate) fn authentication_reloads(&self) -> ReloadMetrics {
        ReloadMetrics {
            reloads: self.authentication.clone(),
            server_hash: self.server_hash.clone(),
        }
    }

    pub(crate) fn authorization_reloads(&self) -> ReloadMetrics {
        ReloadMetrics { reloads: self.authorization.clone(), server_hash: self.server_hash.clone() }
    }

    pub(crate) fn jwt(&self, issuer: &str, succeeded: bool, took: Duration) {
        let labels = [hash(issuer.as_bytes()), result(succeeded).to_owned()];
        self.jwt_latency.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// `previous` is the hash of the key set before, which is not shown any more.
    pub(crate) fn jwks(&self, issuer: &str, keys: Option<&[u8]>, previous: &mut String) {
        let issuer = hash(issuer.as_bytes());
        let labels = [&*self.server_hash, &issuer, result(keys.is_some())];
        self.jwks_fetched.with_label_values(&labels).set(now());
        if let Some(keys) = keys {
            let hash = hash(keys);
            if *previous != hash {
                let old = [&*self.server_hash, previous.as_str(), &issuer];
                // None was shown before the first fetch.
                let _ = self.jwks_info.remove_label_values(&old);
            }
            self.jwks_info.with_label_values(&[&*self.server_hash, &hash, &issuer]).set(1);
            *previous = hash;
        }
    }
}

fn result(succeeded: bool) -> &'static str {
    if succeeded { "success" } else { "failure" }
}

impl Reloads {
    fn new(of: &str) -> Self {
        let name = |name: &str| format!("apiserver_{of}_config_controller_{name}");
        let total = Opts::new(
            name("automatic_reloads_total"),
            format!("Total number of automatic reloads of {of} configuration."),
        );
        let last = Opts::new(
            name("automatic_reload_last_timestamp_seconds"),
            format!("Timestamp of the last automatic reload of {of} configuration."),
        );
        let info = Opts::new(
            name("last_config_info"),
            format!("The hash of the last applied {of} configuration."),
        );
        Self {
            total: IntCounterVec::new(total, &["apiserver_id_hash", "status"]).expect("valid"),
            last: GaugeVec::new(last, &["apiserver_id_hash", "status"]).expect("valid"),
            info: IntGaugeVec::new(info, &["apiserver_id_hash", "hash"]).expect("valid"),
            hash: Arc::default(),
        }
    }
}

impl ReloadMetrics {
    pub(crate) fn failed(&self) {
        self.count("failure");
    }

    pub(crate) fn reloaded(&self, content: &[u8]) {
        self.count("success");
        self.applied(content);
    }

    pub(crate) fn applied(&self, content: &[u8]) {
        let mut shown = self.reloads.hash.lock().unwrap_or_else(PoisonError::into_inner);
        // None is shown before the first one.
        let _ = self.reloads.info.remove_label_values(&[&*self.server_hash, &shown]);
        *shown = hash(content);
        self.reloads.info.with_label_values(&[&*self.server_hash, &shown]).set(1);
    }

    fn count(&self, status: &str) {
        let labels = [&*self.server_hash, status];
        self.reloads.total.with_label_values(&labels).inc();
        self.reloads.last.with_label_values(&labels).set(now());
    }
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

/// Compat: `sha256:` and the hash in hexadecimal.
fn hash(data: &[u8]) -> String {
    if data.is_empty() {
        return String::new();
    }
    let digest = Sha256::digest(data);
    digest.iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}
