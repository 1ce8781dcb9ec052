//! Dials through proxies, by kube-apiserver's names.

use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

#[derive(Clone)]
pub(crate) struct Metrics {
    starts: IntCounterVec,
    latencies: HistogramVec,
    failures: IntCounterVec,
}

/// At which step a dial failed.
#[derive(Clone, Copy)]
pub(crate) enum Stage {
    /// The proxy was not reached.
    Connect,
    /// The proxy refused, or did not reach the target.
    Proxy,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let counter = |name, help, labels: &[&str]| {
            IntCounterVec::new(Opts::new(name, help), labels).expect("the name is valid")
        };
        let latencies = HistogramOpts::new(
            "apiserver_egress_dialer_dial_duration_seconds",
            "[ALPHA] Dial latency histogram in seconds, labeled by the protocol (http-connect or \
             grpc), transport (tcp or uds)",
        )
        .buckets(vec![0.005, 0.025, 0.1, 0.5, 2.5, 12.5]);
        Self {
            starts: counter(
                "apiserver_egress_dialer_dial_start_total",
                "[ALPHA] Dial starts, labeled by the protocol (http-connect or grpc) and transport \
                 (tcp or uds).",
                &["protocol", "transport"],
            ),
            latencies: HistogramVec::new(latencies, &["protocol", "transport"])
                .expect("the name is valid"),
            failures: counter(
                "apiserver_egress_dialer_dial_failure_count",
                "[ALPHA] Dial failure count, labeled by the protocol (http-connect or grpc), \
                 transport (tcp or uds), and stage (connect or proxy). The stage indicates at which \
                 stage the dial failed",
                &["protocol", "transport", "stage"],
            ),
        }
    }

    pub(crate) fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.starts.clone()))?;
        registry.register(Box::new(self.latencies.clone()))?;
        registry.register(Box::new(self.failures.clone()))
    }

    pub(crate) fn started(&self, labels: [&str; 2]) {
        self.starts.with_label_values(&labels).inc();
    }

    pub(crate) fn succeeded(&self, labels: [&str; 2], after: Duration) {
        self.latencies.with_label_values(&labels).observe(after.as_secs_f64());
    }

    pub(crate) fn failed(&self, [protocol, transport]: [&str; 2], stage: Stage) {
        let stage = match stage {
            Stage::Connect => "connect",
            Stage::Proxy => "proxy",
        };
        self.failures.with_label_values(&[protocol, transport, stage]).inc();
    }
}
