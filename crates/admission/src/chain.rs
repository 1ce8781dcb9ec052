//! The plugins that are on, run in their order.

use std::time::Instant;

use meta::{ApiError, Value};

use crate::{
    Attributes, Cluster, Metrics, Plugin,
    metrics::{Phase, Timers},
};

pub struct Chain {
    plugins: Vec<Timed>,
    cluster: Cluster,
    metrics: Metrics,
    steps: Timers,
}

struct Timed {
    plugin: Box<dyn Plugin>,
    timers: Timers,
}

impl Chain {
    pub fn new(plugins: Vec<Box<dyn Plugin>>, cluster: Cluster) -> Self {
        let counters = plugins.iter().flat_map(|plugin| plugin.counters()).collect();
        let metrics = Metrics::new(counters);
        let timed = |plugin: Box<dyn Plugin>| {
            let timers = metrics.of_plugin(plugin.name());
            Timed { plugin, timers }
        };
        let plugins = plugins.into_iter().map(timed).collect();
        let steps = metrics.of_steps();
        Self { plugins, cluster, metrics, steps }
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The names of the mutating plugins and of the validating ones, in order.
    pub fn names(&self) -> [Vec<&'static str>; 2] {
        let of = |phase: fn(&dyn Plugin) -> bool| {
            let plugins = self.plugins.iter().map(|timed| &*timed.plugin);
            plugins.filter(|plugin| phase(*plugin)).map(Plugin::name).collect()
        };
        [of(|plugin| plugin.phases().mutates()), of(|plugin| plugin.phases().validates())]
    }

    /// Runs the mutating plugins, a second time if one of them asks for it.
    pub async fn admit(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&mut Value>,
    ) -> Result<(), ApiError> {
        let started = Instant::now();
        let result = self.run_mutating(attributes, object).await;
        self.steps.observe(Phase::Admit, attributes.operation, started, result.is_err());
        result
    }

    async fn run_mutating(
        &self,
        attributes: &Attributes<'_>,
        mut object: Option<&mut Value>,
    ) -> Result<(), ApiError> {
        loop {
            for Timed { plugin, timers } in self.concerned(attributes) {
                if !plugin.phases().mutates() {
                    continue;
                }
                let started = Instant::now();
                let result = plugin.admit(attributes, object.as_deref_mut(), &self.cluster).await;
                timers.observe(Phase::Admit, attributes.operation, started, result.is_err());
                result?;
            }
            if !attributes.reinvocation.begin_if_requested() {
                return Ok(());
            }
        }
    }

    pub async fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> Result<(), ApiError> {
        let started = Instant::now();
        let result = self.run_validating(attributes, object).await;
        self.steps.observe(Phase::Validate, attributes.operation, started, result.is_err());
        result
    }

    async fn run_validating(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> Result<(), ApiError> {
        for Timed { plugin, timers } in self.concerned(attributes) {
            if !plugin.phases().validates() {
                continue;
            }
            let started = Instant::now();
            let result = plugin.validate(attributes, object, &self.cluster).await;
            timers.observe(Phase::Validate, attributes.operation, started, result.is_err());
            result?;
        }
        Ok(())
    }

    fn concerned(&self, attributes: &Attributes<'_>) -> impl Iterator<Item = &Timed> {
        self.plugins.iter().filter(|timed| {
            timed.plugin.handles(attributes.operation) && timed.plugin.concerns(attributes)
        })
    }
}
