//! Validation of deployments.

use meta::{FieldErrors, Value};

use crate::validation::{
    counts,
    cursor::Field,
    pod_spec::PodSpecOptions,
    workloads::{
        amount, at_most_all, available_within_ready, collision_count, int_or_percent, selector,
        status_update, template_of_replica_set, unknown_strategy, update, within_replicas,
    },
};

pub(crate) fn validate(object: &Value, options: PodSpecOptions, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    spec.get("replicas").non_negative(errors);
    if selector(&spec, "deployment", "invalid label selector", errors) {
        template_of_replica_set(&spec, options, errors);
    }
    deployment_strategy(&spec.get("strategy"), errors);
    counts(&spec, &["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"], errors);
    let deadline = spec.get("progressDeadlineSeconds");
    if deadline.int().is_some_and(|seconds| seconds <= spec.get("minReadySeconds").int_or_zero()) {
        deadline.invalid(errors, "must be greater than minReadySeconds");
    }
}

pub(crate) fn validate_update(
    object: &Value,
    old: &Value,
    options: PodSpecOptions,
    errors: &mut FieldErrors,
) {
    update(object, old, options, errors, validate, &["selector"]);
    status_update(object, old, errors, |status, errors| {
        counts(
            status,
            &[
                "observedGeneration",
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "unavailableReplicas",
                "terminatingReplicas",
                "collisionCount",
            ],
            errors,
        );
        within_replicas(status, &["updatedReplicas", "readyReplicas", "availableReplicas"], errors);
        available_within_ready(status, "cannot be greater than readyReplicas", errors);
    });
    collision_count(object, old, errors);
}

fn deployment_strategy(strategy: &Field<'_>, errors: &mut FieldErrors) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.str_at(&["type"]) {
        "Recreate" => {
            if rolling.is_set() {
                let why = "may not be specified when strategy `type` is 'Recreate'";
                rolling.forbidden(errors, why);
            }
        }
        "" | "RollingUpdate" => {
            if !rolling.is_set() {
                return;
            }
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            int_or_percent(&unavailable, errors);
            int_or_percent(&surge, errors);
            let is_zero = |field: &Field<'_>| field.is_set() && amount(field) == 0;
            if is_zero(&unavailable) && is_zero(&surge) {
                unavailable.invalid(errors, "may not be 0 when `maxSurge` is 0");
            }
            at_most_all(&unavailable, errors);
        }
        _ => unknown_strategy(strategy, &rolling, &["Recreate", "RollingUpdate"], errors),
    }
}
