//! `autoscaling/v1` knows one metric, CPU; what else a stored (v2) autoscaler has, v1 keeps in
//! annotations, so that a client of v1 can write back what it read. Tools read these annotations, so
//! that their text is the one of kube-apiserver: metrics in the shape of an old beta, behaviour in
//! the names of Go.

mod metrics;
mod scaling;

use meta::{Value, value};
use registry::Conversion;

use self::metrics::{Place, read_metrics, write_metrics};
use self::scaling::{read_behavior, write_behavior, write_conditions};
use crate::autoscaling::horizontal_pod_autoscaler::defaults::CPU_PERCENT;

pub(super) struct V1;

pub(crate) const ANNOTATIONS: [&str; 4] = [METRICS, BEHAVIOR, CURRENT_METRICS, CONDITIONS];
pub(crate) const SPEC_ANNOTATIONS: [&str; 2] = [METRICS, BEHAVIOR];
pub(crate) const STATUS_ANNOTATIONS: [&str; 2] = [CURRENT_METRICS, CONDITIONS];
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";

impl Conversion for V1 {
    fn to_stored(&self, object: Value) -> Value {
        to_v2(object)
    }

    fn to_served(&self, object: Value) -> Value {
        to_v1(object)
    }
}

/// Without the defaults of v2: validation sees the behaviour as it is in the annotation.
pub(crate) fn to_v2(mut object: Value) -> Value {
    let [others, behavior, current, conditions] = [METRICS, BEHAVIOR, CURRENT_METRICS, CONDITIONS]
        .map(|key| take_annotation(&mut object, key));
    drop_empty_annotations(&mut object);
    let mut metrics = others.and_then(|others| read_metrics(&others, Place::Spec));
    if let Some(target) = object.remove_at(&["spec", "targetCPUUtilizationPercentage"]) {
        metrics.get_or_insert_default().push(cpu_metric(target));
    }
    // Without any metric it is the CPU that counts.
    let metrics = metrics.filter(|metrics| !metrics.is_empty());
    let metrics = metrics.unwrap_or_else(|| vec![cpu_metric(CPU_PERCENT.into())]);
    object.set_at(&["spec", "metrics"], metrics);
    if let Some(behavior) = behavior.and_then(|behavior| read_behavior(&behavior)) {
        object.set_at(&["spec", "behavior"], behavior);
    }
    let used = object.remove_at(&["status", "currentCPUUtilizationPercentage"]);
    let used = used.map(|used| {
        let resource = value!({"name": "cpu", "current": {"averageUtilization": (used)}});
        vec![value!({"type": "Resource", "resource": (resource)})]
    });
    // What the annotation has says more.
    let current = current.and_then(|current| read_metrics(&current, Place::Status)).or(used);
    if let Some(current) = current.filter(|current| !current.is_empty()) {
        object.set_at(&["status", "currentMetrics"], current);
    }
    if let Some(Value::Array(conditions)) = conditions
        && !conditions.is_empty()
    {
        object.set_at(&["status", "conditions"], conditions);
    }
    object
}

pub(crate) fn to_v1(mut object: Value) -> Value {
    // Only what is written here counts.
    drop_annotations(&mut object);
    if let Some(Value::Array(metrics)) = object.remove_at(&["spec", "metrics"]) {
        let (cpu, others): (Vec<Value>, Vec<Value>) =
            metrics.into_iter().partition(|metric| cpu_used(metric, "target").is_some());
        if let Some(target) = cpu.first().and_then(|cpu| cpu_used(cpu, "target")) {
            object.set_at(&["spec", "targetCPUUtilizationPercentage"], target.clone());
        }
        if !others.is_empty() {
            annotate(&mut object, METRICS, write_metrics(&others, Place::Spec));
        }
    }
    if let Some(Value::Array(metrics)) = object.remove_at(&["status", "currentMetrics"]) {
        if let Some(used) = metrics.iter().rev().find_map(|metric| cpu_used(metric, "current")) {
            object.set_at(&["status", "currentCPUUtilizationPercentage"], used.clone());
        }
        if !metrics.is_empty() {
            annotate(&mut object, CURRENT_METRICS, write_metrics(&metrics, Place::Status));
        }
    }
    if let Some(behavior) = object.remove_at(&["spec", "behavior"]) {
        annotate(&mut object, BEHAVIOR, write_behavior(&behavior));
    }
    if let Some(Value::Array(conditions)) = object.remove_at(&["status", "conditions"])
        && !conditions.is_empty()
    {
        annotate(&mut object, CONDITIONS, write_conditions(&conditions));
    }
    object
}

/// Removes the annotations that stand for fields: no version lets a client write them itself.
pub(crate) fn drop_annotations(object: &mut Value) {
    for key in ANNOTATIONS {
        object.remove_at(&["metadata", "annotations", key]);
    }
    drop_empty_annotations(object);
}

fn cpu_metric(percent: Value) -> Value {
    let target = value!({"type": "Utilization", "averageUtilization": (percent)});
    value!({"type": "Resource", "resource": {"name": "cpu", "target": (target)}})
}

/// The utilization, if this metric is about that of the CPU.
fn cpu_used<'a>(metric: &'a Value, field: &str) -> Option<&'a Value> {
    let is_cpu =
        metric.str_at(&["type"]) == "Resource" && metric.str_at(&["resource", "name"]) == "cpu";
    let used = metric.at(&["resource", field, "averageUtilization"]);
    used.filter(|used| is_cpu && !used.is_null())
}

fn annotate(object: &mut Value, key: &str, text: String) {
    object.set_at(&["metadata", "annotations", key], text);
}

/// An annotation that is JSON, taken out. Text that is none is lost, as upstream.
fn take_annotation(object: &mut Value, key: &str) -> Option<Value> {
    let text = object.remove_at(&["metadata", "annotations", key])?;
    let options = codec::json::DecodeOptions { strict: false };
    codec::json::decode_any(text.as_str()?.as_bytes(), options).ok().map(|decoded| decoded.value)
}

fn drop_empty_annotations(object: &mut Value) {
    let path = ["metadata", "annotations"];
    let annotations = object.at(&path).and_then(Value::as_object);
    if annotations.is_some_and(meta::Map::is_empty) {
        object.remove_at(&path);
    }
}

/// A struct as Go prints it: fields in their own order, those without a value left out.
fn ordered(fields: &[(&str, Option<String>)]) -> String {
    let given = fields.iter().filter_map(|(name, text)| Some((name, text.as_ref()?)));
    let given: Vec<String> = given.map(|(name, text)| format!("\"{name}\":{text}")).collect();
    format!("{{{}}}", given.join(","))
}

fn listed(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", meta::cancel::interruptible(items).collect::<Vec<_>>().join(","))
}

/// A value as JSON, if there is one.
fn text_of(value: Option<&Value>) -> Option<String> {
    value.filter(|value| !value.is_null()).map(meta::json::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn autoscaler() -> Value {
        value!({
            "metadata": {"name": "a", "annotations": {"own": "x"}},
            "spec": {
                "maxReplicas": 3i64,
                "metrics": [
                    {"type": "Pods", "pods": {
                        "metric": {"name": "qps", "selector": {"matchLabels": {"a": "b"}}},
                        "target": {"type": "AverageValue", "averageValue": "10"}}},
                    {"type": "Object", "object": {
                        "describedObject": {"kind": "Service", "name": "s", "apiVersion": "v1"},
                        "metric": {"name": "hits"}, "target": {"type": "Value", "value": "5"}}},
                    {"type": "External", "external": {
                        "metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "30"}}},
                    {"type": "ContainerResource", "containerResource": {
                        "name": "memory", "container": "c", "target": {"type": "Utilization", "averageUtilization": 60i64}}},
                    {"type": "Resource", "resource": {
                        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80i64}}}
                ],
                "behavior": {
                    "scaleUp": {
                        "stabilizationWindowSeconds": 5i64, "selectPolicy": "Max",
                        "policies": [{"type": "Pods", "value": 4i64, "periodSeconds": 15i64}]},
                    "scaleDown": {
                        "selectPolicy": "Min",
                        "policies": [{"type": "Percent", "value": 50i64, "periodSeconds": 15i64}]}}
            },
            "status": {
                "conditions": [{"type": "AbleToScale", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z", "reason": "R"}],
                "currentMetrics": [
                    {"type": "Resource", "resource": {"name": "cpu", "current": {"averageValue": "7m", "averageUtilization": 30i64}}}
                ]
            }
        })
    }

    #[test]
    fn what_v1_cannot_say_survives_a_round_trip_through_it() {
        let served = V1.to_served(autoscaler());
        assert_eq!(served.i64_at(&["spec", "targetCPUUtilizationPercentage"]), Some(80));
        assert_eq!(served.i64_at(&["status", "currentCPUUtilizationPercentage"]), Some(30));
        for path in [["spec", "metrics"], ["spec", "behavior"], ["status", "conditions"]] {
            assert!(served.at(&path).is_none(), "{path:?}");
        }
        assert_eq!(V1.to_stored(served), autoscaler());
    }

    #[test]
    fn annotations_read_as_those_of_kube_apiserver() {
        let served = V1.to_served(autoscaler());
        let annotation = |key: &str| served.str_at(&["metadata", "annotations", key]).to_owned();
        let cases = [
            (
                METRICS,
                r#"[{"type":"Pods","pods":{"metricName":"qps","targetAverageValue":"10","selector":{"matchLabels":{"a":"b"}}}},{"type":"Object","object":{"target":{"kind":"Service","name":"s","apiVersion":"v1"},"metricName":"hits","targetValue":"5"}},{"type":"External","external":{"metricName":"queue","targetAverageValue":"30"}},{"type":"ContainerResource","containerResource":{"name":"memory","targetAverageUtilization":60,"container":"c"}}]"#,
            ),
            (
                BEHAVIOR,
                r#"{"ScaleUp":{"StabilizationWindowSeconds":5,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15}],"Tolerance":null},"ScaleDown":{"StabilizationWindowSeconds":null,"SelectPolicy":"Min","Policies":[{"Type":"Percent","Value":50,"PeriodSeconds":15}],"Tolerance":null}}"#,
            ),
            (
                CURRENT_METRICS,
                r#"[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":30,"currentAverageValue":"7m"}}]"#,
            ),
            (
                CONDITIONS,
                r#"[{"type":"AbleToScale","status":"True","lastTransitionTime":"2026-01-02T03:04:05Z","reason":"R"}]"#,
            ),
        ];
        for (key, expected) in cases {
            assert_eq!(annotation(key), expected);
        }
    }

    #[test]
    fn an_annotation_that_makes_no_sense_is_dropped() {
        let mut served = value!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 1i64}});
        for key in [METRICS, BEHAVIOR, CURRENT_METRICS, CONDITIONS] {
            served.set_at(&["metadata", "annotations", key], "{");
        }
        // Without metrics, v1's default metric applies.
        let target = value!({"type": "Utilization", "averageUtilization": 80i64});
        let cpu = value!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
        let spec = value!({"maxReplicas": 1i64, "metrics": [cpu]});
        assert_eq!(V1.to_stored(served), value!({"metadata": {"name": "a"}, "spec": spec}));
    }
}
