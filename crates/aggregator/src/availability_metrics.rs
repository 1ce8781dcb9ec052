//! Metrics of the availability of APIServices, by kube-aggregator's names.

use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};

#[derive(Clone)]
pub struct AvailabilityMetrics {
    unavailable: IntGaugeVec,
    unavailable_total: IntCounterVec,
}

impl Default for AvailabilityMetrics {
    fn default() -> Self {
        let unavailable = Opts::new(
            "aggregator_unavailable_apiservice",
            "Gauge of APIServices which are marked as unavailable broken down by APIService name.",
        );
        let total = Opts::new(
            "aggregator_unavailable_apiservice_total",
            "Counter of APIServices which are marked as unavailable broken down by APIService name \
             and reason.",
        );
        Self {
            unavailable: IntGaugeVec::new(unavailable, &["name"]).expect("a valid name"),
            unavailable_total: IntCounterVec::new(total, &["name", "reason"])
                .expect("a valid name"),
        }
    }
}

impl AvailabilityMetrics {
    pub fn register(&self, registry: &Registry) {
        registry.register(Box::new(self.unavailable.clone())).expect("registered once");
        registry.register(Box::new(self.unavailable_total.clone())).expect("registered once");
    }

    pub(crate) fn set(&self, name: &str, available: bool) {
        self.unavailable.with_label_values(&[name]).set(i64::from(!available));
    }

    pub(crate) fn count_unavailable(&self, name: &str, reason: &str) {
        self.unavailable_total.with_label_values(&[name, reason]).inc();
    }

    pub(crate) fn forget(&self, name: &str) {
        // It may never have been set.
        let _ = self.unavailable.remove_label_values(&[name]);
    }
}
