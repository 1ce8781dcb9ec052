//! Validation of pod disruption budgets.

use meta::{FieldErrors, Value};

use crate::validation::{
    conditions, counts,
    cursor::Field,
    label_selector,
    ratcheting::{SPEC_SELECTOR_VALUE, ratchet},
    workloads::{at_most_all, int_or_percent, show_selector},
};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let (min, max) = (spec.get("minAvailable"), spec.get("maxUnavailable"));
    if min.is_set() && max.is_set() {
        let show = |field: &Field<'_>| {
            field.value().map_or_else(|| "null".to_owned(), meta::json::to_string)
        };
        let policy = spec.get("unhealthyPodEvictionPolicy");
        let shown = format!(
            r#"{{"MinAvailable":{},"Selector":{},"MaxUnavailable":{},"UnhealthyPodEvictionPolicy":{}}}"#,
            show(&min),
            show_selector(&spec.get("selector")),
            show(&max),
            show(&policy)
        );
        spec.invalid_shown(errors, &shown, "minAvailable and maxUnavailable cannot be both set");
    }
    for amount in [&min, &max] {
        if amount.is_set() {
            int_or_percent(amount, errors);
            at_most_all(amount, errors);
        }
    }
    let selector = spec.get("selector");
    label_selector(&selector, SPEC_SELECTOR_VALUE, errors);
    let policies = ["AlwaysAllow", "IfHealthyBudget"];
    spec.get("unhealthyPodEvictionPolicy").one_of(errors, &policies);
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(object, errors);
    ratchet(old, validate, errors);
    if object.get("status") != old.get("status") {
        let root = Field::root(object);
        let names = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
        conditions(&root.get("status").get("conditions"), errors);
        counts(&root.get("status"), &names, errors);
    }
}
