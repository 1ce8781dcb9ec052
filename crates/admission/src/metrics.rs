//! kube-apiserver's metrics of the chain and of each plugin.

use std::{sync::OnceLock, time::Instant};

use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounterVec, Registry};

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
