//! `autoscaling/v1` knows one metric, CPU; what else a stored (v2) autoscaler has, v1 keeps in
//! annotations, so that a client of v1 can write back what it read.

use meta::{Value, value};
use registry::Conversion;

pub(super) struct V1;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";

impl Conversion for V1 {
    fn to_stored(&self, mut object: Value) -> Value {
        let mut metrics = take_annotation(&mut object, METRICS);
        if let Some(target) = object.remove_at(&["spec", "targetCPUUtilizationPercentage"]) {
            let list = metrics.get_or_insert_with(|| Value::Array(Vec::new()));
            if let Some(list) = list.as_array_mut() {
                list.push(cpu_metric(
                    "target",
                    &value!({"type": "Utilization", "averageUtilization": (target)}),
                ));
            }
        }
        if let Some(metrics) = metrics {
            object.set_at(&["spec", "metrics"], metrics);
        }
        if let Some(behavior) = take_annotation(&mut object, BEHAVIOR) {
            object.set_at(&["spec", "behavior"], behavior);
        }
        let mut current = take_annotation(&mut object, CURRENT_METRICS);
        if let Some(used) = object.remove_at(&["status", "currentCPUUtilizationPercentage"]) {
            let list = current.get_or_insert_with(|| Value::Array(Vec::new()));
            if let Some(list) = list.as_array_mut() {
                list.push(cpu_metric("current", &value!({"averageUtilization": (used)})));
            }
        }
        if let Some(current) = current {
            object.set_at(&["status", "currentMetrics"], current);
        }
        if let Some(conditions) = take_annotation(&mut object, CONDITIONS) {
            object.set_at(&["status", "conditions"], conditions);
        }
        object
    }

    fn to_served(&self, mut object: Value) -> Value {
        let (cpu, others) = split(object.remove_at(&["spec", "metrics"]), "target");
        if let Some(target) = cpu {
            object.set_at(&["spec", "targetCPUUtilizationPercentage"], target);
        }
        annotate(&mut object, METRICS, others);
        let behavior = object.remove_at(&["spec", "behavior"]);
        annotate(&mut object, BEHAVIOR, behavior);
        let (cpu, others) = split(object.remove_at(&["status", "currentMetrics"]), "current");
        if let Some(used) = cpu {
            object.set_at(&["status", "currentCPUUtilizationPercentage"], used);
        }
        annotate(&mut object, CURRENT_METRICS, others);
        let conditions = object.remove_at(&["status", "conditions"]);
        annotate(&mut object, CONDITIONS, conditions);
        object
    }
}

fn cpu_metric(field: &str, target: &Value) -> Value {
    let mut resource = value!({"name": "cpu"});
    resource.set_at(&[field], target.clone());
    value!({"type": "Resource", "resource": (resource)})
}

/// The utilization of the CPU metric, and the metrics that v1 has no field for.
fn split(metrics: Option<Value>, field: &str) -> (Option<Value>, Option<Value>) {
    let Some(Value::Array(metrics)) = metrics else { return (None, None) };
    let (mut cpu, mut others) = (None, Vec::new());
    for metric in metrics {
        let is_cpu =
            metric.str_at(&["type"]) == "Resource" && metric.str_at(&["resource", "name"]) == "cpu";
        let used = metric.at(&["resource", field, "averageUtilization"]).filter(|_| is_cpu);
        match used.filter(|value| !value.is_null() && cpu.is_none()) {
            Some(used) => cpu = Some(used.clone()),
            None => others.push(metric),
        }
    }
    (cpu, (!others.is_empty()).then_some(Value::Array(others)))
}

fn annotate(object: &mut Value, key: &str, value: Option<Value>) {
    if let Some(value) = value {
        object.set_at(&["metadata", "annotations", key], meta::json::to_string(&value));
    }
}

/// An annotation that is JSON, taken out. Text that is none stays where it is.
fn take_annotation(object: &mut Value, key: &str) -> Option<Value> {
    let text = object.at(&["metadata", "annotations", key])?.as_str()?;
    let options = codec::json::DecodeOptions { strict: false };
    let value = codec::json::decode_any(text.as_bytes(), options).ok()?.value;
    object.remove_at(&["metadata", "annotations", key]);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_v1_cannot_say_survives_a_round_trip_through_it() {
        let stored = value!({
            "metadata": {"name": "a"},
            "spec": {
                "maxReplicas": 3i64,
                "metrics": [
                    {"type": "Pods", "pods": {"metric": {"name": "qps"}}},
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80i64}}}
                ],
                "behavior": {"scaleUp": {"stabilizationWindowSeconds": 5i64}}
            }
        });
        let served = V1.to_served(stored.clone());
        assert_eq!(served.i64_at(&["spec", "targetCPUUtilizationPercentage"]), Some(80));
        assert!(
            served.at(&["spec", "metrics"]).is_none() && served.at(&["spec", "behavior"]).is_none()
        );
        let mut again = V1.to_stored(served);
        again.remove_at(&["metadata", "annotations"]);
        assert_eq!(again, stored);
    }
}
