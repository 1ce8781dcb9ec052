//! Calls to the signer, by kube-apiserver's names.

use std::time::{Duration, SystemTime};

use grpc::CallError;
use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use crate::client::Timestamp;

#[derive(Clone)]
pub struct Metrics {
    fetched: GaugeVec,
    data: GaugeVec,
    fetches: IntCounterVec,
    signatures: IntCounterVec,
    durations: HistogramVec,
}

/// Why a call gave nothing that can be used.
#[derive(Debug)]
pub(crate) struct Failure {
    /// None: the signer has answered, and the answer is no good.
    pub(crate) code: Option<&'static str>,
    pub(crate) why: String,
}

impl Failure {
    pub(crate) fn call(doing: &str, error: &CallError) -> Self {
        Self { code: Some(error.code), why: format!("{doing}: {error}") }
    }

    pub(crate) fn answer(why: impl Into<String>) -> Self {
        Self { code: None, why: why.into() }
    }

    pub(crate) fn within(self, doing: &str) -> Self {
        Self { why: format!("{doing}: {}", self.why), ..self }
    }
}

/// Of a call that went well.
pub(crate) const OK: &str = "OK";

const BUCKETS: [f64; 14] =
    [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

impl Metrics {
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let name =
            |name: &str, help: &str| Opts::new(format!("apiserver_externaljwt_{name}"), help);
        let fetched = name(
            "fetch_keys_success_timestamp",
            "[ALPHA] Unix Timestamp in seconds of the last successful FetchKeys request",
        );
        let data = name(
            "fetch_keys_data_timestamp",
            "[ALPHA] Unix Timestamp in seconds of the last successful FetchKeys data_timestamp \
             value returned by the external signer",
        );
        let fetches =
            name("fetch_keys_request_total", "[ALPHA] Total attempts at syncing supported JWKs");
        let signatures = name("sign_request_total", "[ALPHA] Total attempts at signing JWT");
        let durations = HistogramOpts::new(
            "apiserver_externaljwt_request_duration_seconds",
            "[ALPHA] Request duration and time for calls to external-jwt-signer",
        );
        let metrics = Self {
            fetched: GaugeVec::new(fetched, &[])?,
            data: GaugeVec::new(data, &[])?,
            fetches: IntCounterVec::new(fetches, &["code"])?,
            signatures: IntCounterVec::new(signatures, &["code"])?,
            durations: HistogramVec::new(durations.buckets(BUCKETS.to_vec()), &["method", "code"])?,
        };
        registry.register(Box::new(metrics.fetched.clone()))?;
        registry.register(Box::new(metrics.data.clone()))?;
        registry.register(Box::new(metrics.fetches.clone()))?;
        registry.register(Box::new(metrics.signatures.clone()))?;
        registry.register(Box::new(metrics.durations.clone()))?;
        Ok(metrics)
    }

    pub(crate) fn called(&self, method: &str, code: &str, took: Duration) {
        self.durations.with_label_values(&[method, code]).observe(took.as_secs_f64());
    }

    pub(crate) fn fetched<T>(&self, result: &Result<T, Failure>) {
        self.fetches.with_label_values(&[label(result)]).inc();
        if result.is_ok() {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let none: [&str; 0] = [];
            self.fetched.with_label_values(&none).set(now.unwrap_or_default().as_secs_f64());
        }
    }

    pub(crate) fn data_is_from(&self, at: Timestamp) {
        let none: [&str; 0] = [];
        let seconds = at.seconds as f64 + f64::from(at.nanos) / 1e9;
        self.data.with_label_values(&none).set(seconds);
    }

    pub(crate) fn signed<T>(&self, result: &Result<T, Failure>) {
        self.signatures.with_label_values(&[label(result)]).inc();
    }
}

fn label<T>(result: &Result<T, Failure>) -> &'static str {
    match result {
        Ok(_) => OK,
        Err(failure) => failure.code.unwrap_or("unknown-non-grpc"),
    }
}
