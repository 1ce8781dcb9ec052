//! Horizontal pod autoscalers.

pub(crate) mod defaults;
mod validation;

use std::borrow::Cow;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy, WriteContext, keep_all_but_status};

use self::defaults::{default_spec, default_v1};
use crate::{
    conversion::horizontal_pod_autoscaler::{
        ANNOTATIONS, SPEC_ANNOTATIONS, STATUS_ANNOTATIONS, drop_annotations, to_v2,
    },
    printer_cells::{NONE, UNKNOWN, UNSET, number, with_more},
};

pub(crate) struct HorizontalPodAutoscaler;

impl Strategy for HorizontalPodAutoscaler {
    fn default(&self, scaler: &mut Value) {
        if scaler.str_at(&["apiVersion"]) == "autoscaling/v1" {
            default_v1(scaler);
        } else {
            drop_annotations(scaler);
            default_spec(scaler.object_at_mut(&["spec"]));
        }
    }

    fn prepare_for_create(&self, scaler: &mut Value, _cx: &WriteContext<'_>) {
        // They are the status of v1, which a new object cannot have.
        keep_annotations(&STATUS_ANNOTATIONS, scaler, &Value::Null);
    }

    fn prepare_for_update(&self, scaler: &mut Value, old: &Value, _cx: &WriteContext<'_>) {
        keep_annotations(&STATUS_ANNOTATIONS, scaler, old);
    }

    fn prepare_for_subresource(
        &self,
        subresource: &str,
        scaler: &mut Value,
        old: &Value,
        _cx: &WriteContext<'_>,
    ) {
        keep_all_but_status(subresource, scaler, old);
        keep_annotations(&SPEC_ANNOTATIONS, scaler, old);
    }

    fn validate(&self, autoscaler: &Value, errors: &mut FieldErrors) {
        validation::validate(&with_metrics(autoscaler), errors);
    }

    fn validate_update(&self, autoscaler: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(&with_metrics(autoscaler), &with_metrics(old), errors);
    }

    fn internal_annotations(&self) -> &'static [&'static str] {
        &ANNOTATIONS
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Reference", |scaler, _| reference(scaler).into()),
            Column::new("Targets", |scaler, _| targets(&with_metrics(scaler)).into()),
            Column::new("MinPods", |scaler, _| min_pods(scaler).into()),
            Column::new("MaxPods", |scaler, _| number(scaler, &["spec", "maxReplicas"])),
            Column::new("Replicas", |scaler, _| number(scaler, &["status", "currentReplicas"])),
            Column::AGE,
        ]
    }
}

/// What v1 keeps of spec and status in annotations belongs to them and not to the metadata. Other
/// versions have no such annotations.
fn keep_annotations(names: &[&str], scaler: &mut Value, old: &Value) {
    for name in names {
        let at = ["metadata", "annotations", name];
        match old.at(&at).cloned() {
            Some(kept) => scaler.set_at(&at, kept),
            None => drop(scaler.remove_at(&at)),
        }
    }
}

fn reference(scaler: &Value) -> String {
    let target = |field| scaler.str_at(&["spec", "scaleTargetRef", field]);
    format!("{}/{}", target("kind"), target("name"))
}

fn min_pods(scaler: &Value) -> String {
    scaler.i64_at(&["spec", "minReplicas"]).map_or(UNSET.to_owned(), |min| min.to_string())
}

/// v1 has a field for one metric and hides the others in annotations; v2 has them all.
fn with_metrics(scaler: &Value) -> Cow<'_, Value> {
    if scaler.str_at(&["apiVersion"]) != "autoscaling/v1" {
        return Cow::Borrowed(scaler);
    }
    Cow::Owned(to_v2(scaler.clone()))
}

/// How many metrics are shown before the rest is only counted.
const METRICS_SHOWN_MAX: usize = 2;

/// `cpu: 30%/80%, 12/10 (avg) + 1 more...`: every metric as it is and as it should be.
fn targets(scaler: &Value) -> String {
    let specs = scaler.items_at(&["spec", "metrics"]);
    if specs.is_empty() {
        return NONE.to_owned();
    }
    let statuses = scaler.items_at(&["status", "currentMetrics"]);
    let texts: Vec<String> = specs
        .iter()
        .enumerate()
        .map(|(at, spec)| metric(spec, statuses.get(at).unwrap_or(&Value::Null)))
        .collect();
    with_more(&texts, METRICS_SHOWN_MAX, ", ")
}

fn metric(spec: &Value, status: &Value) -> String {
    match spec.str_at(&["type"]) {
        "External" => whole_or_average(spec, status, "external"),
        "Object" => whole_or_average(spec, status, "object"),
        "Pods" => {
            let current = current(status, "pods").map_or(UNKNOWN, |now| value(now, "averageValue"));
            format!("{current}/{}", value(target(spec, "pods"), "averageValue"))
        }
        "Resource" => resource(spec, status, "resource"),
        "ContainerResource" => resource(spec, status, "containerResource"),
        _ => "<unknown type>".to_owned(),
    }
}

/// `5/10`, or `5/10 (avg)` where it is the average of the pods that counts.
fn whole_or_average(spec: &Value, status: &Value, source: &str) -> String {
    let (target, current) = (target(spec, source), current(status, source));
    if given(target, "averageValue").is_some() {
        let current = current.and_then(|now| given(now, "averageValue")).unwrap_or(UNKNOWN);
        return format!("{current}/{} (avg)", value(target, "averageValue"));
    }
    let current = current.map_or(UNKNOWN, |now| value(now, "value"));
    format!("{current}/{}", value(target, "value"))
}

/// `cpu: 30%/80%`, or `memory: 100Mi/200Mi` where the target is an amount.
fn resource(spec: &Value, status: &Value, source: &str) -> String {
    let (name, target) = (spec.str_at(&[source, "name"]), target(spec, source));
    let current = current(status, source);
    if given(target, "averageValue").is_some() {
        let current = current.map_or(UNKNOWN, |now| value(now, "averageValue"));
        return format!("{name}: {current}/{}", value(target, "averageValue"));
    }
    let percent =
        |value: &Value| value.i64_at(&["averageUtilization"]).map(|used| format!("{used}%"));
    let current = current.and_then(percent).unwrap_or_else(|| UNKNOWN.to_owned());
    let target = percent(target).unwrap_or_else(|| "<auto>".to_owned());
    format!("{name}: {current}/{target}")
}

fn target<'a>(spec: &'a Value, source: &str) -> &'a Value {
    spec.at(&[source, "target"]).unwrap_or(&Value::Null)
}

/// What is measured, where the status has a metric of this kind in the place of the target's.
fn current<'a>(status: &'a Value, source: &str) -> Option<&'a Value> {
    let metric = status.get(source).filter(|metric| !metric.is_null())?;
    Some(metric.get("current").unwrap_or(&Value::Null))
}

fn given<'a>(metric: &'a Value, field: &str) -> Option<&'a str> {
    metric.get(field).and_then(Value::as_str)
}

/// Compat: a quantity that should be there and is not prints as Go's nil.
fn value<'a>(metric: &'a Value, field: &str) -> &'a str {
    given(metric, field).unwrap_or("<nil>")
}
