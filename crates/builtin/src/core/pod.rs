//! Pods: deleted gracefully, because the kubelet has to stop the containers first.

mod app_armor;
pub(crate) mod binding;
mod condition;
mod defaults;
pub(crate) mod eviction;
mod label_keys;
pub(crate) mod qos;
mod summary;
pub(crate) mod validation;

use std::collections::{HashMap, VecDeque};

use meta::{FieldErrors, Value, value};
use registry::{Cell, Column, Strategy, WriteContext, keep_all_but_status};

use self::defaults::default_pod;
use self::qos::qos_class;
use self::summary::summary;
use crate::printer_cells::{NONE, condition_is_true, filled_or};
use crate::validation::cursor::Field;
use crate::validation::pod_spec::PodSpecOptions;
use crate::warnings;

pub(crate) struct Pod(pub(crate) PodSpecOptions);

impl Strategy for Pod {
    fn default(&self, pod: &mut Value) {
        default_pod(pod.object_at_mut(&[]));
    }

    fn prepare_for_create(&self, pod: &mut Value, cx: &WriteContext<'_>) {
        // Compat: a class that the client has sent stays, whatever the containers request.
        let class = match pod.str_at(&["status", "qosClass"]) {
            "" => qos_class(pod).to_owned(),
            given => given.to_owned(),
        };
        pod.set_at(&["status"], value!({"phase": "Pending", "qosClass": (class)}));
        if !pod.items_at(&["spec", "schedulingGates"]).is_empty() {
            let gated = value!([{
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastTransitionTime": (cx.now.to_rfc3339())
            }]);
            pod.set_at(&["status", "conditions"], gated);
        }
        label_keys::merge_into_selectors(pod);
        app_armor::copy_annotations_to_fields(pod, cx.warnings);
    }

    fn prepare_for_subresource(
        &self,
        subresource: &str,
        pod: &mut Value,
        old: &Value,
        _cx: &WriteContext<'_>,
    ) {
        match subresource {
            "ephemeralcontainers" => {
                let containers = pod.remove_at(&["spec", "ephemeralContainers"]);
                keep_all(pod, old);
                match containers {
                    Some(containers) => pod.set_at(&["spec", "ephemeralContainers"], containers),
                    None => drop(pod.remove_at(&["spec", "ephemeralContainers"])),
                }
            }
            "resize" => keep_all_but_resources(pod, old),
            _ => {
                keep_all_but_status(subresource, pod, old);
                keep_status_fields(pod, old);
            }
        }
    }

    fn graceful_deletion(&self, pod: &Value, asked: Option<i64>) -> Option<i64> {
        let spec = pod.i64_at(&["spec", "terminationGracePeriodSeconds"]).unwrap_or(DEFAULT_GRACE);
        let mut seconds = asked.unwrap_or(spec);
        // No kubelet runs it, or it has ended: there is nothing to wait for.
        let ended = matches!(pod.str_at(&["status", "phase"]), "Succeeded" | "Failed");
        if pod.str_at(&["spec", "nodeName"]).is_empty() || ended {
            seconds = 0;
        }
        Some(seconds.max(0))
    }

    fn validate(&self, pod: &Value, errors: &mut FieldErrors) {
        validation::validate(pod, self.0, errors);
    }

    fn validate_update(&self, pod: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(pod, old, self.0, errors);
    }

    fn validate_subresource(
        &self,
        subresource: &str,
        pod: &Value,
        old: &Value,
        errors: &mut FieldErrors,
    ) {
        match subresource {
            "ephemeralcontainers" => {
                validation::validate_ephemeral_containers(pod, old, self.0, errors);
            }
            "resize" => validation::resize::validate(pod, old, self.0, errors),
            _ => validation::validate_status(pod, old, errors),
        }
    }

    fn warnings(&self, subresource: &str, pod: &Value, old: Option<&Value>) -> Vec<String> {
        match (subresource, old) {
            ("", None) => warnings::pod(pod),
            ("status", _) => status_addresses(pod),
            _ => Vec::new(),
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

/// Everything but the few words about the write itself.
fn keep_all(pod: &mut Value, old: &Value) {
    for part in ["spec", "status"] {
        match old.get(part) {
            Some(value) => pod.set_at(&[part], value.clone()),
            None => drop(pod.remove_at(&[part])),
        }
    }
    for part in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let path = ["metadata", part];
        match old.at(&path) {
            Some(value) => pod.set_at(&path, value.clone()),
            None => drop(pod.remove_at(&path)),
        }
    }
}

/// A resize is about resources. Containers that come, go or change places are left as they are: that is
/// refused later.
fn keep_all_but_resources(pod: &mut Value, old: &Value) {
    let lists = ["containers", "initContainers"];
    let is_same_length =
        |list: &&str| pod.items_at(&["spec", list]).len() == old.items_at(&["spec", list]).len();
    if !lists.iter().all(is_same_length) {
        return;
    }
    let resized =
        lists.map(|list| resized(pod.items_at(&["spec", list]), old.items_at(&["spec", list])));
    let whole = pod.at(&["spec", "resources"]).cloned();
    keep_all(pod, old);
    match whole {
        Some(whole) => pod.set_at(&["spec", "resources"], whole),
        None => drop(pod.remove_at(&["spec", "resources"])),
    }
    for (list, containers) in lists.iter().zip(resized) {
        if !containers.is_empty() {
            pod.set_at(&["spec", list], containers);
        }
    }
}

fn resized(containers: &[Value], old: &[Value]) -> Vec<Value> {
    if containers.iter().zip(old).any(|(new, old)| new.get("name") != old.get("name")) {
        return containers.to_vec();
    }
    let pairs = containers.iter().zip(old);
    pairs
        .map(|(new, old)| {
            let mut container = old.clone();
            for part in ["resources", "resizePolicy"] {
                match new.get(part) {
                    Some(value) => container.set_at(&[part], value.clone()),
                    None => drop(container.remove_at(&[part])),
                }
            }
            container
        })
        .collect()
}

/// Compat: a status update keeps the owner references, and what an older kubelet does not send.
fn keep_status_fields(pod: &mut Value, old: &Value) {
    match old.at(&["metadata", "ownerReferences"]) {
        Some(owners) => pod.set_at(&["metadata", "ownerReferences"], owners.clone()),
        None => drop(pod.remove_at(&["metadata", "ownerReferences"])),
    }
    for field in ["qosClass", "observedGeneration"] {
        let path = ["status", field];
        if pod.at(&path).is_none()
            && let Some(before) = old.at(&path)
        {
            pod.set_at(&path, before.clone());
        }
    }
    let mut before: HashMap<&str, VecDeque<&Value>> = HashMap::new();
    for condition in old.items_at(&["status", "conditions"]) {
        before.entry(condition.str_at(&["type"])).or_default().push_back(condition);
    }
    let conditions = pod.at_mut(&["status", "conditions"]).and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        // Several of one type are allowed: each takes from the next of the old ones.
        let of_type = before.get_mut(condition.str_at(&["type"]));
        let Some(old) = of_type.and_then(VecDeque::pop_front) else { continue };
        if condition.get("observedGeneration").is_none()
            && let Some(generation) = old.get("observedGeneration")
        {
            condition.set_at(&["observedGeneration"], generation.clone());
        }
    }
}

/// Addresses that a kubelet has found.
fn status_addresses(pod: &Value) -> Vec<String> {
    let root = Field::root(pod);
    let status = root.get("status");
    let mut texts = Vec::new();
    for list in ["podIPs", "hostIPs"] {
        for item in status.get(list).items() {
            let ip = item.get("ip");
            texts.extend(warnings::ip(&ip.path().to_string(), ip.str()));
        }
    }
    texts
}

const DEFAULT_GRACE: i64 = 30;

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
