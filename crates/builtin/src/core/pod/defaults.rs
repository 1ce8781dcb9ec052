//! The defaults that pods have and templates have not: what an admission plugin or a newer server
//! would fill in otherwise shows up when a pod is made, not in every deployment.

use std::collections::BTreeMap;

use meta::{Map, Str, Value, quantity::Quantity};

use crate::core::pod_spec::{default_pod_spec, drop_init_container_annotations};
use crate::defaulting::{SetDefault, fill_resources, round_resources};

pub(crate) fn default_pod(pod: &mut Map) {
    drop_init_container_annotations(pod);
    let spec = pod.part("spec");
    for list in ["containers", "initContainers"] {
        for container in spec.each(list) {
            if let Some(resources) = container.given("resources") {
                fill_resources(resources, "requests", "limits");
            }
        }
    }
    default_pod_level_resources(spec);
    spec.set_default("enableServiceLinks", true);
    if spec.get("hostNetwork").and_then(Value::as_bool) == Some(true) {
        default_host_ports(spec);
    }
    // Compat: a negative grace period becomes one second.
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|s| s < 0) {
        spec.insert("terminationGracePeriodSeconds", 1i64);
    }
    default_pod_spec(spec);
    if let Some(status) = pod.given("status") {
        default_status(status);
    }
}

/// On the network of its host, a pod takes the host's ports.
fn default_host_ports(spec: &mut Map) {
    for list in ["containers", "initContainers"] {
        for port in spec.each(list).flat_map(|container| container.each("ports")) {
            if let Some(number) = port.get("containerPort").cloned() {
                port.set_default_if_empty("hostPort", number);
            }
        }
    }
}

/// Compat: `podIP` counts where it differs from the first of `podIPs`, as old kubelets write it only.
fn default_status(status: &mut Map) {
    let first = status.get("podIPs").and_then(Value::as_array).and_then(<[_]>::first);
    let first = first.map(|ip| Str::new(ip.str_at(&["ip"])));
    let one = status.get("podIP").and_then(Value::as_str).filter(|ip| !ip.is_empty());
    match (one.map(Str::new), first) {
        (Some(one), first) if first.as_ref() != Some(&one) => {
            let ip: Map = [("ip", Value::String(one))].into_iter().collect();
            status.insert("podIPs", Value::Array(vec![ip.into()]));
        }
        (None, Some(first)) => drop(status.insert("podIP", first)),
        _ => {}
    }
    round_resources(status, &["allocatedResources"]);
    if let Some(resources) = status.given("resources") {
        round_resources(resources, &["limits", "requests"]);
    }
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        for container in status.each(list) {
            round_resources(container, &["allocatedResources"]);
            if let Some(resources) = container.given("resources") {
                round_resources(resources, &["limits", "requests"]);
            }
        }
    }
}

/// Resources of the pod as a whole: what it does not say follows from its containers, then from its
/// own limits.
fn default_pod_level_resources(spec: &mut Map) {
    let has = |spec: &mut Map, list: &str| {
        spec.given("resources").and_then(|own| own.given(list)).is_some_and(|map| !map.is_empty())
    };
    if !has(spec, "limits") && !has(spec, "requests") {
        return;
    }
    let limits = of_containers(spec, "limits");
    let requests = of_containers(spec, "requests");
    let own = spec.part("resources");
    for (name, amount) in limits.iter().filter(|(name, _)| name.starts_with(HUGE_PAGES)) {
        let asked = own.given("requests").is_some_and(|requests| requests.contains_key(name));
        if !asked {
            own.part("limits").set_default(name, amount.to_string());
        }
    }
    if own.given("limits").is_none_or(|limits| limits.is_empty()) {
        return;
    }
    for (name, amount) in requests.iter().filter(|(name, _)| matches!(&***name, "cpu" | "memory")) {
        own.part("requests").set_default(name, amount.to_string());
    }
    let limits = own.part("limits").clone();
    for (name, amount) in limits {
        if matches!(&*name, "cpu" | "memory") || name.starts_with(HUGE_PAGES) {
            own.part("requests").set_default(&name, amount);
        }
    }
}

const HUGE_PAGES: &str = "hugepages-";

/// What all containers take at the same time, at most: those that run on add up, an init container
/// runs beside the sidecars that were started before it.
fn of_containers(spec: &mut Map, list: &str) -> BTreeMap<Str, Quantity> {
    let mut total = BTreeMap::new();
    for container in spec.each("containers") {
        add(&mut total, &amounts(container, list));
    }
    let (mut sidecars, mut starting) = (BTreeMap::new(), BTreeMap::new());
    for container in spec.each("initContainers") {
        let mut own = amounts(container, list);
        if container.get("restartPolicy").and_then(Value::as_str) == Some("Always") {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            own.clone_from(&sidecars);
        } else {
            add(&mut own, &sidecars);
        }
        keep_greater(&mut starting, own);
    }
    keep_greater(&mut total, starting);
    total
}

fn amounts(container: &mut Map, list: &str) -> BTreeMap<Str, Quantity> {
    let Some(list) = container.given("resources").and_then(|own| own.given(list)) else {
        return BTreeMap::new();
    };
    let read = |amount: &Value| Quantity::from_value(amount).ok();
    list.iter().filter_map(|(name, amount)| Some((name.clone(), read(amount)?))).collect()
}

fn add(total: &mut BTreeMap<Str, Quantity>, more: &BTreeMap<Str, Quantity>) {
    for (name, amount) in more {
        match total.get_mut(name) {
            Some(sum) => sum.add(amount),
            None => drop(total.insert(name.clone(), amount.clone())),
        }
    }
}

fn keep_greater(total: &mut BTreeMap<Str, Quantity>, other: BTreeMap<Str, Quantity>) {
    for (name, amount) in other {
        if total.get(&name).is_none_or(|known| amount > *known) {
            total.insert(name, amount);
        }
    }
}
