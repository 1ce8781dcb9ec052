//! Nodes.

mod validation;

use meta::{FieldErrors, Map, Value};
use registry::{Cell, Column, Strategy, WriteContext, keep_all_but_status};

use crate::defaulting::{SetDefault, is_empty, round_resources};
use crate::printer_cells::{NONE, UNKNOWN, filled_or, text};
use crate::validation::cursor::Field;
use crate::warnings;

pub(crate) struct Node;

impl Strategy for Node {
    fn default(&self, node: &mut Value) {
        let node = node.object_at_mut(&[]);
        default_pod_cidrs(node);
        if let Some(status) = node.given("status") {
            if let Some(capacity) = status.get("capacity").filter(|own| !own.is_null()).cloned() {
                status.set_default_if_empty("allocatable", capacity);
            }
            round_resources(status, &["capacity", "allocatable"]);
        }
    }

    fn prepare_for_create(&self, node: &mut Value, _cx: &WriteContext<'_>) {
        drop_configuration(node, None);
    }

    fn prepare_for_update(&self, node: &mut Value, old: &Value, _cx: &WriteContext<'_>) {
        drop_configuration(node, Some(old));
    }

    fn prepare_for_subresource(
        &self,
        subresource: &str,
        node: &mut Value,
        old: &Value,
        _cx: &WriteContext<'_>,
    ) {
        keep_all_but_status(subresource, node, old);
        drop_configuration(node, Some(old));
    }

    fn validate(&self, node: &Value, errors: &mut FieldErrors) {
        validation::validate(node, errors);
    }

    fn validate_update(&self, node: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(node, old, errors);
    }

    fn validate_subresource(
        &self,
        _subresource: &str,
        node: &Value,
        old: &Value,
        errors: &mut FieldErrors,
    ) {
        validation::validate_status_update(node, old, errors);
    }

    fn warnings(&self, subresource: &str, node: &Value, _old: Option<&Value>) -> Vec<String> {
        let mut texts = Vec::new();
        if !subresource.is_empty() {
            return texts;
        }
        if node.at(&["spec", "configSource"]).is_some() {
            texts.push("spec.configSource: the feature is removed".to_owned());
        }
        if !node.str_at(&["spec", "externalID"]).is_empty() {
            texts.push(
                "spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned(),
            );
        }
        for cidr in Field::root(node).get("spec").get("podCIDRs").items() {
            texts.extend(warnings::cidr(&cidr.path().to_string(), cidr.str()));
        }
        texts
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Status", |node, _| status(node).into()),
            Column::new("Roles", |node, _| roles(node).into()),
            Column::AGE,
            Column::new("Version", |node, _| text(node, &["status", "nodeInfo", "kubeletVersion"])),
            Column::new("Internal-IP", |node, _| address(node, "InternalIP")).wide(),
            Column::new("External-IP", |node, _| address(node, "ExternalIP")).wide(),
            Column::new("OS-Image", |node, _| info(node, "osImage")).wide(),
            Column::new("Kernel-Version", |node, _| kernel(node).into()).wide(),
            Column::new("Container-Runtime", |node, _| info(node, "containerRuntimeVersion"))
                .wide(),
        ]
    }
}

/// Nodes once took their kubelet's configuration from here. What is there already stays.
fn drop_configuration(node: &mut Value, old: Option<&Value>) {
    for path in [["spec", "configSource"], ["status", "config"]] {
        if old.is_none_or(|old| old.at(&path).is_none()) {
            node.remove_at(&path);
        }
    }
}

/// Compat: `podCIDR` counts where it differs from the first of `podCIDRs`, which came later.
fn default_pod_cidrs(node: &mut Map) {
    let Some(spec) = node.given("spec") else { return };
    let first = spec.get("podCIDRs").and_then(Value::as_array).and_then(<[_]>::first).cloned();
    let one = spec.get("podCIDR").filter(|cidr| !is_empty(cidr)).cloned();
    match (one, first) {
        (Some(one), first) if first.as_ref() != Some(&one) => {
            spec.insert("podCIDRs", Value::Array(vec![one]));
        }
        (None, Some(first)) => drop(spec.insert("podCIDR", first)),
        _ => {}
    }
}

fn status(node: &Value) -> String {
    let conditions = node.items_at(&["status", "conditions"]).iter();
    // The last one counts, where a kubelet wrote several.
    let ready = conditions.rev().find(|condition| condition.str_at(&["type"]) == "Ready");
    let mut status = match ready.map(|condition| condition.str_at(&["status"])) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if node.bool_at(&["spec", "unschedulable"]) {
        status.push_str(",SchedulingDisabled");
    }
    status
}

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
const ROLE: &str = "kubernetes.io/role";

/// Roles are labels: `node-role.kubernetes.io/<role>`, or the older `kubernetes.io/role: <role>`.
fn roles(node: &Value) -> String {
    let labels = node.at(&["metadata", "labels"]).and_then(Value::as_object);
    let roles = labels.into_iter().flat_map(Map::iter).filter_map(|(key, value)| {
        if key == ROLE { value.as_str() } else { key.strip_prefix(ROLE_PREFIX) }
    });
    let mut roles: Vec<&str> = roles.filter(|role| !role.is_empty()).collect();
    if roles.is_empty() {
        return NONE.to_owned();
    }
    roles.sort_unstable();
    roles.dedup();
    roles.join(",")
}

fn address(node: &Value, kind: &str) -> Cell {
    let addresses = node.items_at(&["status", "addresses"]).iter();
    let mut addresses = addresses.filter(|address| address.str_at(&["type"]) == kind);
    addresses.next().map_or(NONE.into(), |address| text(address, &["address"]))
}

fn info(node: &Value, field: &str) -> Cell {
    filled_or(node, &["status", "nodeInfo", field], UNKNOWN)
}

/// `6.8.0-45-generic (amd64)`
fn kernel(node: &Value) -> String {
    let info = |field| node.str_at(&["status", "nodeInfo", field]);
    let version = Some(info("kernelVersion")).filter(|text| !text.is_empty()).unwrap_or(UNKNOWN);
    match info("architecture") {
        "" => version.to_owned(),
        architecture => format!("{version} ({architecture})"),
    }
}
