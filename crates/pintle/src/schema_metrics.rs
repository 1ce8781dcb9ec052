//! The metrics of custom resources' validation, by kube-apiserver's names.

use prometheus::{Histogram, HistogramOpts, Registry};
use schema::structural::{TimedStep, observe_with};

/// Prometheus' default buckets.
const DURATIONS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// From 10 µs on, each four times the one before.
const RATCHETING: &[f64] =
    &[1e-5, 4e-5, 1.6e-4, 6.4e-4, 2.56e-3, 1.024e-2, 4.096e-2, 0.16384, 0.65536, 2.62144];

pub(crate) fn register(registry: &Registry) -> Result<(), String> {
    let histogram = |name: &str, help: &str, buckets: &[f64]| -> Result<Histogram, String> {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        let made = Histogram::with_opts(options).map_err(|error| error.to_string())?;
        registry.register(Box::new(made.clone())).map_err(|error| error.to_string())?;
        Ok(made)
    };
    let compilation = histogram(
        "apiserver_cel_compilation_duration_seconds",
        "Time to compile the CEL rules of a custom resource's schema.",
        DURATIONS,
    )?;
    let evaluation = histogram(
        "apiserver_cel_evaluation_duration_seconds",
        "Time to evaluate the CEL rules of a custom resource.",
        DURATIONS,
    )?;
    let ratcheting = histogram(
        "apiextensions_apiserver_validation_ratcheting_seconds",
        "Time to compare an update of a custom resource with the old object.",
        RATCHETING,
    )?;
    observe_with(Box::new(move |step, elapsed| {
        let histogram = match step {
            TimedStep::Compilation => &compilation,
            TimedStep::Evaluation => &evaluation,
            TimedStep::Ratcheting => &ratcheting,
        };
        histogram.observe(elapsed.as_secs_f64());
    }));
    Ok(())
}
