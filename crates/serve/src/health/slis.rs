//! `/metrics/slis`: the results of the health checks, for service level indicators.

use prometheus::{Encoder as _, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder};

pub(super) struct Slis {
    registry: Registry,
    last: IntGaugeVec,
    all: IntCounterVec,
}

impl Slis {
    pub(super) fn new() -> Self {
        let opts =
            Opts::new("kubernetes_healthcheck", "How a check went the last time: 1 is well.");
        let last = IntGaugeVec::new(opts, &["name", "type"]).expect("valid names");
        let opts = Opts::new("kubernetes_healthchecks_total", "How often a check went how.");
        let all = IntCounterVec::new(opts, &["name", "status", "type"]).expect("valid names");
        let registry = Registry::new();
        registry.register(Box::new(last.clone())).expect("registered once");
        registry.register(Box::new(all.clone())).expect("registered once");
        Self { registry, last, all }
    }

    pub(super) fn note(&self, name: &str, endpoint: &str, well: bool) {
        self.last.with_label_values(&[name, endpoint]).set(i64::from(well));
        let status = if well { "success" } else { "error" };
        self.all.with_label_values(&[name, status, endpoint]).inc();
    }

    pub(super) fn reset(&self) {
        self.last.reset();
        self.all.reset();
    }

    pub(super) fn render(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut out);
        out
    }
}
