//! What a pod requests and is limited to: the sum of its containers, at least what an init container
//! needs, or what the pod itself says.

use std::collections::BTreeMap;

use meta::{Value, quantity::Quantity};

pub(crate) type ResourceList = BTreeMap<String, Quantity>;

/// The amounts of `requests` or `limits`.
pub(crate) fn list_of(resources: Option<&Value>, field: &str) -> ResourceList {
    let map = resources.and_then(|resources| resources.get(field)).and_then(Value::as_object);
    let map = map.into_iter().flat_map(meta::Map::iter);
    map.filter_map(|(name, amount)| Some((name.to_string(), Quantity::from_value(amount).ok()?)))
        .collect()
}

/// The `requests` or `limits` of a pod. `pod_level`: those of the pod itself take precedence.
pub(crate) fn of_pod(pod: &Value, field: &str, pod_level: bool) -> ResourceList {
    let mut total = ResourceList::new();
    for container in pod.items_at(&["spec", "containers"]) {
        add(&mut total, &list_of(container.get("resources"), field));
    }
    let (mut sidecars, mut init) = (ResourceList::new(), ResourceList::new());
    for container in pod.items_at(&["spec", "initContainers"]) {
        let mut needed = list_of(container.get("resources"), field);
        if container.str_at(&["restartPolicy"]) == "Always" {
            // A sidecar runs on beside the others.
            add(&mut total, &needed);
            add(&mut sidecars, &needed);
            needed.clone_from(&sidecars);
        } else {
            add(&mut needed, &sidecars);
        }
        raise(&mut init, needed);
    }
    raise(&mut total, init);
    if pod_level {
        let of_pod = list_of(pod.at(&["spec", "resources"]), field);
        total.extend(of_pod.into_iter().filter(|(name, _)| is_pod_level(name)));
    }
    total
}

/// The resources that may be given for a whole pod. Compat: huge pages may be as well, and upstream's
/// plugins do not count them.
fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory")
}

pub(crate) fn add(total: &mut ResourceList, more: &ResourceList) {
    for (name, amount) in more {
        match total.get_mut(name) {
            Some(known) => known.add(amount),
            None => drop(total.insert(name.clone(), amount.clone())),
        }
    }
}

fn raise(total: &mut ResourceList, others: ResourceList) {
    for (name, amount) in others {
        if total.get(&name).is_none_or(|known| amount > *known) {
            total.insert(name, amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::yaml;

    #[test]
    fn init_containers_and_sidecars_count_as_they_run() {
        let with = |cpu: &str| format!("resources: {{requests: {{cpu: {cpu}}}}}");
        let cases = [
            (format!("containers: [{{{}}}, {{{}}}]", with("1"), with("500m")), "1500m"),
            (format!("containers: [{{{}}}], initContainers: [{{{}}}]", with("1"), with("3")), "3"),
            (
                format!(
                    "containers: [{{{}}}], initContainers: [{{restartPolicy: Always, {}}}, {{{}}}]",
                    with("1"),
                    with("1"),
                    with("2")
                ),
                "3",
            ),
            (format!("containers: [{{{}}}], {}", with("1"), with("4")), "4"),
        ];
        for (spec, expected) in cases {
            let pod = yaml(&format!("{{spec: {{{spec}}}}}"));
            assert_eq!(of_pod(&pod, "requests", true)["cpu"].to_string(), expected, "{spec}");
        }
    }
}
