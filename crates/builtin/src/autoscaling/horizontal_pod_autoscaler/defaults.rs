//! The defaults of autoscalers: they look at the CPU, and scale as fast as they did before one could
//! tell them.

use meta::{Map, Value, value};

use crate::conversion::horizontal_pod_autoscaler::{to_v1, to_v2};
use crate::defaulting::SetDefault;

pub(super) fn default_spec(spec: &mut Map) {
    spec.set_default("minReplicas", 1i64);
    spec.set_default_if_empty(
        "metrics",
        value!([{"type": "Resource", "resource": {"name": "cpu", "target": {
            "type": "Utilization", "averageUtilization": CPU_PERCENT
        }}}]),
    );
    if let Some(behavior) = spec.given("behavior") {
        default_behavior(behavior);
    }
}

pub(crate) fn default_behavior(behavior: &mut Map) {
    default_scale_up(behavior.part("scaleUp"));
    default_scale_down(behavior.part("scaleDown"));
}

/// v1 has one field for the metric that is there by default, and annotations for all others. A way
/// through v2 brings these into the form in which they are shown.
pub(super) fn default_v1(scaler: &mut Value) {
    scaler.object_at_mut(&["spec"]).set_default("minReplicas", 1i64);
    *scaler = to_v1(to_v2(std::mem::take(scaler)));
}

/// What an autoscaler without metrics aims at.
pub(crate) const CPU_PERCENT: i64 = 80;

fn default_scale_up(rules: &mut Map) {
    rules.set_default("stabilizationWindowSeconds", 0i64);
    rules.set_default("selectPolicy", "Max");
    let (pods, percent) = (policy("Pods", 4), policy("Percent", 100));
    rules.set_default("policies", vec![pods, percent]);
}

/// How long to wait before scaling down is a flag of the controller.
fn default_scale_down(rules: &mut Map) {
    rules.set_default("selectPolicy", "Max");
    rules.set_default("policies", vec![policy("Percent", 100)]);
}

fn policy(kind: &str, amount: i64) -> Value {
    value!({"type": (kind), "value": (amount), "periodSeconds": 15i64})
}
