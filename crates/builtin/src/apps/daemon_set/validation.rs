//! Validation of daemon sets.

use meta::{FieldErrors, Value, selector::LabelSelector};

use crate::validation::{
    counts,
    cursor::Field,
    label_selector,
    pod_spec::PodSpecOptions,
    pod_template::{self, runs_forever},
    ratcheting::{SPEC_SELECTOR_VALUE, ratchet},
    workloads::{
        amount, at_most_all, collision_count, for_update, immutable, int_or_percent,
        is_empty_selector, show_selector, status_update, template_labels_even_if_empty,
        unknown_strategy,
    },
};

pub(crate) fn validate(object: &Value, options: PodSpecOptions, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let selector = spec.get("selector");
    label_selector(&selector, SPEC_SELECTOR_VALUE, errors);
    let template = spec.get("template");
    if let Ok(selector) = LabelSelector::from_object(selector.value()) {
        template_labels_even_if_empty(&template, &selector, errors);
    }
    if selector.is_set() && is_empty_selector(&selector) {
        let shown = show_selector(&selector);
        selector.invalid_shown(errors, &shown, "empty selector is invalid for daemonset");
    }
    pod_template::validate(&template, options, errors);
    runs_forever(&template, "DaemonSet", errors);
    spec.get("minReadySeconds").non_negative(errors);
    daemon_set_strategy(&spec.get("updateStrategy"), errors);
    spec.get("revisionHistoryLimit").non_negative(errors);
}

pub(crate) fn validate_update(
    object: &Value,
    old: &Value,
    options: PodSpecOptions,
    errors: &mut FieldErrors,
) {
    immutable(object, old, &["selector"], errors);
    validate(object, for_update(options, old), errors);
    ratchet(old, |old, errors| validate(old, options, errors), errors);
    status_update(object, old, errors, |status, errors| {
        counts(
            status,
            &[
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
                "observedGeneration",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberUnavailable",
                "collisionCount",
            ],
            errors,
        );
    });
    collision_count(object, old, errors);
}

fn daemon_set_strategy(strategy: &Field<'_>, errors: &mut FieldErrors) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.str_at(&["type"]) {
        "OnDelete" => {}
        "" | "RollingUpdate" => {
            if !rolling.is_set() {
                return;
            }
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            int_or_percent(&unavailable, errors);
            int_or_percent(&surge, errors);
            at_most_all(&unavailable, errors);
            at_most_all(&surge, errors);
            // Left out, `maxUnavailable` is 1 and `maxSurge` is 0.
            let some_unavailable = !unavailable.is_set() || amount(&unavailable) != 0;
            match (some_unavailable, amount(&surge) != 0) {
                (true, true) => {
                    surge.invalid(errors, "may not be set when maxUnavailable is non-zero");
                }
                (false, false) => {
                    unavailable.required(errors, "cannot be 0 when maxSurge is 0");
                }
                _ => {}
            }
        }
        _ => unknown_strategy(strategy, &rolling, &["RollingUpdate", "OnDelete"], errors),
    }
}
