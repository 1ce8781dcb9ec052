//! Pods: deleted gracefully, because the kubelet has to stop the containers first.

pub(crate) mod binding;
mod condition;
mod defaults;
pub(crate) mod eviction;
mod summary;

use meta::{FieldErrors, Value, value};
use registry::{Cell, Column, Strategy, WriteContext};

use self::defaults::default_pod;
use self::summary::summary;
use crate::format::{NONE, condition_is_true, filled_or};
use crate::validation::pod;

pub(crate) struct Pod;

impl Strategy for Pod {
    fn default(&self, pod: &mut Value) {
        default_pod(pod.object_at_mut(&[]));
    }

    fn prepare_for_create(&self, pod: &mut Value, _cx: &WriteContext<'_>) {
        pod.set_at(&["status"], value!({"phase": "Pending", "qosClass": (qos_class(pod))}));
    }

    fn graceful_deletion(&self, pod: &Value, asked: Option<i64>) -> Option<i64> {
        let spec = pod.i64_at(&["spec", "terminationGracePeriodSeconds"]).unwrap_or(DEFAULT_GRACE);
        let mut seconds = asked.unwrap_or(spec);
        // Nobody runs it, or it has ended: there is nothing to wait for.
        let ended = matches!(pod.str_at(&["status", "phase"]), "Succeeded" | "Failed");
        if pod.str_at(&["spec", "nodeName"]).is_empty() || ended {
            seconds = 0;
        }
        Some(seconds.max(0))
    }

    fn validate(&self, pod: &Value, errors: &mut FieldErrors) {
        pod::validate(pod, errors);
    }

    fn validate_update(&self, pod: &Value, old: &Value, errors: &mut FieldErrors) {
        pod::validate_update(pod, old, errors);
    }

    fn validate_subresource(
        &self,
        subresource: &str,
        pod: &Value,
        old: &Value,
        errors: &mut FieldErrors,
    ) {
        match subresource {
            "ephemeralcontainers" => pod::validate_ephemeral_containers(pod, old, errors),
            "resize" => pod::validate_resize(pod, old, errors),
            _ => pod::validate_update(pod, old, errors),
        }
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Ready", |pod, now| summary(pod, now).ready.into()),
            Column::new("Status", |pod, now| Cell::Text(summary(pod, now).status)),
            Column::new("Restarts", |pod, now| summary(pod, now).restarts.into()),
            Column::AGE,
            Column::new("IP", |pod, _| ip(pod)).wide(),
            Column::new("Node", |pod, _| filled_or(pod, &["spec", "nodeName"], NONE)).wide(),
            Column::new("Nominated Node", |pod, _| {
                filled_or(pod, &["status", "nominatedNodeName"], NONE)
            })
            .wide(),
            Column::new("Readiness Gates", |pod, _| readiness_gates(pod).into()).wide(),
        ]
    }

    fn row_conditions(&self, pod: &Value) -> Vec<Value> {
        let (reason, message) = match pod.str_at(&["status", "phase"]) {
            "Succeeded" => ("Succeeded", "The pod has completed successfully."),
            "Failed" => ("Failed", "The pod failed."),
            _ => return Vec::new(),
        };
        vec![
            value!({"type": "Completed", "status": "True", "reason": (reason), "message": (message)}),
        ]
    }
}

const DEFAULT_GRACE: i64 = 30;

/// What the pod is promised: `Guaranteed` if every container has equal limits and requests for CPU
/// and memory, `BestEffort` if none has any, else `Burstable`.
fn qos_class(pod: &Value) -> &'static str {
    let containers = pod.items_at(&["spec", "containers"]).iter();
    let containers = containers.chain(pod.items_at(&["spec", "initContainers"]));
    let (mut any, mut all_equal) = (false, true);
    for container in containers {
        for resource in ["cpu", "memory"] {
            let limit = quantity(container, "limits", resource);
            let request = quantity(container, "requests", resource).or_else(|| limit.clone());
            any |= limit.is_some() || request.is_some();
            all_equal &= limit.is_some() && limit == request;
        }
    }
    match (any, all_equal) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// A quantity that isn't zero.
fn quantity(container: &Value, list: &str, resource: &str) -> Option<String> {
    let text = container.str_at(&["resources", list, resource]);
    (!text.is_empty() && text != "0").then(|| text.to_owned())
}

fn ip(pod: &Value) -> Cell {
    let first = pod.items_at(&["status", "podIPs"]).first();
    let first = first.map_or("", |ip| ip.str_at(&["ip"]));
    // Compat: an old kubelet writes `podIP` only, and it counts where the two differ.
    filled_or(pod, &["status", "podIP"], if first.is_empty() { NONE } else { first })
}

/// How many of the conditions that the pod waits for are true: `1/2`.
fn readiness_gates(pod: &Value) -> String {
    let gates = pod.items_at(&["spec", "readinessGates"]);
    if gates.is_empty() {
        return NONE.to_owned();
    }
    let open = gates.iter().filter(|gate| condition_is_true(pod, gate.str_at(&["conditionType"])));
    format!("{}/{}", open.count(), gates.len())
}
