//! kube-apiserver's metrics of the chain and of each plugin.

use std::{collections::HashMap, sync::OnceLock, time::Instant};

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounterVec, Registry,
    core::{Collector, Desc},
    proto,
};

use crate::Operation;

#[derive(Clone, Copy)]
pub(crate) enum Phase {
    Admit,
    Validate,
}

impl Phase {
    fn as_str(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Validate => "validate",
        }
    }
}

/// The metrics of a chain. They count from the start, and are shown once they are registered.
#[derive(Clone)]
pub struct Metrics {
    steps: HistogramVec,
    plugins: HistogramVec,
    /// Of the plugins themselves.
    counters: Vec<IntCounterVec>,
}

/// As upstream.
const BUCKETS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5];

impl Metrics {
    pub(crate) fn new(counters: Vec<IntCounterVec>) -> Self {
        let histogram = |name: &str, help: &str, labels: &[&str]| {
            let options = HistogramOpts::new(name, help).buckets(BUCKETS.to_vec());
            HistogramVec::new(options, labels).expect("valid names")
        };
        Self {
            steps: histogram(
                "apiserver_admission_step_admission_duration_seconds",
                "Time of all mutating or all validating admission plugins for a request.",
                &["operation", "rejected", "type"],
            ),
            plugins: histogram(
                "apiserver_admission_controller_admission_duration_seconds",
                "Time of one admission plugin for a request that concerns it.",
                &["operation", "rejected", "type", "name"],
            ),
            counters,
        }
    }

    pub fn register(&self, registry: &Registry) {
        for histogram in [&self.steps, &self.plugins] {
            registry.register(Box::new(histogram.clone())).expect("registered once");
        }
        registry.register(Box::new(StepSummary::new(&self.steps))).expect("registered once");
        for counter in &self.counters {
            registry.register(Box::new(counter.clone())).expect("registered once");
        }
    }

    pub(crate) fn of_steps(&self) -> Timers {
        Timers { plugin: None, all: self.steps.clone(), accepted: Default::default() }
    }

    pub(crate) fn of_plugin(&self, name: &'static str) -> Timers {
        Timers { plugin: Some(name), all: self.plugins.clone(), accepted: Default::default() }
    }
}

/// The sums and counts of the steps again: kube-apiserver has a histogram and a summary without
/// quantiles of the same.
struct StepSummary {
    steps: HistogramVec,
    desc: Desc,
}

impl StepSummary {
    fn new(steps: &HistogramVec) -> Self {
        let labels = ["operation", "rejected", "type"].map(str::to_owned).to_vec();
        let desc = Desc::new(
            "apiserver_admission_step_admission_duration_seconds_summary".to_owned(),
            "Time of all mutating or all validating admission plugins for a request.".to_owned(),
            labels,
            HashMap::new(),
        );
        Self { steps: steps.clone(), desc: desc.expect("a valid metric") }
    }
}

impl Collector for StepSummary {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let mut family = proto::MetricFamily::default();
        family.set_name(self.desc.fq_name.clone());
        family.set_help(self.desc.help.clone());
        family.set_field_type(proto::MetricType::SUMMARY);
        let steps = self.steps.collect();
        let metrics = steps.iter().flat_map(proto::MetricFamily::get_metric).map(|step| {
            let mut summary = proto::Summary::default();
            summary.set_sample_count(step.get_histogram().get_sample_count());
            summary.set_sample_sum(step.get_histogram().get_sample_sum());
            let mut metric = proto::Metric::from_label(step.get_label().to_vec());
            metric.set_summary(summary);
            metric
        });
        family.set_metric(metrics.collect());
        vec![family]
    }
}

/// The histograms of the chain or of one plugin: those of accepted requests are looked up once.
pub(crate) struct Timers {
    plugin: Option<&'static str>,
    all: HistogramVec,
    /// By phase and operation.
    accepted: [[OnceLock<Histogram>; 4]; 2],
}

impl Timers {
    pub(crate) fn observe(
        &self,
        phase: Phase,
        operation: Operation,
        started: Instant,
        rejected: bool,
    ) {
        let seconds = started.elapsed().as_secs_f64();
        let find = || {
            let rejected = if rejected { "true" } else { "false" };
            let labels = [operation.as_str(), rejected, phase.as_str()];
            match self.plugin {
                None => self.all.with_label_values(&labels),
                Some(name) => self.all.with_label_values(&[labels[0], labels[1], labels[2], name]),
            }
        };
        if rejected {
            find().observe(seconds);
        } else {
            let known = &self.accepted[phase as usize][operation as usize];
            known.get_or_init(find).observe(seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_a_histogram_and_a_summary() {
        let metrics = Metrics::new(Vec::new());
        let steps = metrics.of_steps();
        for rejected in [false, false, true] {
            steps.observe(Phase::Admit, Operation::Create, Instant::now(), rejected);
        }
        let registry = Registry::new();
        metrics.register(&registry);
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather());
        let text = text.expect("metrics are text");
        let name = "apiserver_admission_step_admission_duration_seconds_summary";
        for line in [
            format!("# TYPE {name} summary"),
            format!("{name}_count{{operation=\"CREATE\",rejected=\"false\",type=\"admit\"}} 2"),
            format!("{name}_count{{operation=\"CREATE\",rejected=\"true\",type=\"admit\"}} 1"),
        ] {
            assert!(text.lines().any(|own| own == line), "{line} is missing in\n{text}");
        }
    }
}
