//! `resize`: CPU and memory of containers and of the pod as a whole, nothing else, and the pod stays
//! what it was promised to be.

use meta::{FieldErrors, Value};

use super::{annotations, metadata_and_spec};
use crate::core::pod::qos::qos_class;
use crate::validation::{cursor::Field, pod_spec::PodSpecOptions};

pub(crate) fn validate(
    pod: &Value,
    old: &Value,
    options: PodSpecOptions,
    errors: &mut FieldErrors,
) {
    let (root, old_root) = (Field::root(pod), Field::root(old));
    let nowhere = meta::FieldPath::new("");
    if old_root.value_at(&["metadata", "annotations", annotations::MIRROR]).is_some() {
        return errors.forbidden(&nowhere, "static pods cannot be resized");
    }
    if old_root.str_at(&["spec", "os", "name"]) == "windows" {
        return errors.forbidden(&nowhere, "windows pods cannot be resized");
    }
    metadata_and_spec(&root, options, errors);
    let spec = root.get("spec");
    let before = match old.str_at(&["status", "qosClass"]) {
        "" => qos_class(old),
        class => class,
    };
    if before != qos_class(pod) {
        let why = "Pod QOS Class may not change as a result of resizing";
        spec.invalid_value(errors, pod.str_at(&["status", "qosClass"]), why);
    }
    if !node_can_resize(old) {
        spec.forbidden(errors, "Pod running on node without support for resize");
    }
    whole(&spec, old, errors);
    let before = errors.count();
    same_containers(&spec, old, errors);
    if errors.count() > before {
        return;
    }
    for list in ["initContainers", "containers"] {
        let containers = spec.get(list);
        for (container, before) in containers.items().zip(old.items_at(&["spec", list])) {
            nothing_removed(&container.get("resources"), before.get("resources"), "", errors);
        }
    }
    containers(&spec, old, errors);
    if errors.is_empty() && kept(pod) != kept(old) {
        spec.forbidden(errors, "only cpu and memory resources are mutable");
    }
}

/// A node that supports resizes reports the resources of its containers.
fn node_can_resize(pod: &Value) -> bool {
    let mut statuses = pod.items_at(&["status", "containerStatuses"]).iter();
    let running = statuses.find(|status| status.at(&["state", "running"]).is_some());
    running.is_none_or(|status| status.get("resources").is_some())
}

/// The resources of the pod as a whole.
fn whole(spec: &Field<'_>, old: &Value, errors: &mut FieldErrors) {
    let resources = spec.get("resources");
    let before = old.at(&["spec", "resources"]).filter(|before| !before.is_null());
    let is_filled = |resources: &Value| {
        ["requests", "limits"].iter().any(|part| {
            resources.get(part).and_then(Value::as_object).is_some_and(|list| !list.is_empty())
        })
    };
    if !resources.value().is_some_and(is_filled) && !before.is_some_and(is_filled) {
        return;
    }
    if before.is_some() && !resources.is_set() {
        return resources.forbidden(errors, "pod-level resources cannot be removed");
    }
    if before.is_some() {
        nothing_removed(&resources, before, "pod-level ", errors);
    }
    let kept = |resources: Option<&Value>| without_cpu_and_memory(resources);
    if kept(resources.value()) != kept(before) {
        spec.forbidden(errors, "only cpu and memory resources are mutable at pod-level");
    }
}

fn nothing_removed(
    resources: &Field<'_>,
    before: Option<&Value>,
    whose: &str,
    errors: &mut FieldErrors,
) {
    for part in ["requests", "limits"] {
        let before = before.and_then(|before| before.get(part)).and_then(Value::as_object);
        let mut names = before.into_iter().flat_map(meta::Map::keys);
        if names.any(|name| resources.value_at(&[part, name]).is_none()) {
            let why = format!("{whose}resource {part} cannot be removed");
            resources.get(part).forbidden(errors, &why);
        }
    }
}

fn same_containers(spec: &Field<'_>, old: &Value, errors: &mut FieldErrors) {
    for list in ["containers", "initContainers"] {
        let (containers, before) = (spec.get(list), old.items_at(&["spec", list]));
        if containers.len() != before.len() {
            let why = format!("{list} may not be added or removed on resize");
            containers.forbidden(errors, &why);
            continue;
        }
        for (container, before) in containers.items().zip(before) {
            let name = container.get("name");
            if !name.is(before.str_at(&["name"])) {
                let why = format!("{list} may not be renamed or reordered on resize");
                name.forbidden(errors, &why);
            }
        }
    }
}

fn containers(spec: &Field<'_>, old: &Value, errors: &mut FieldErrors) {
    let differs = |container: &Field<'_>, before: &Value| {
        let mut now = container.value().map(kept_of_container).unwrap_or_default();
        // Compat: kube-apiserver does not copy claims here, so a pod with claims cannot be resized.
        now.remove_at(&["resources", "claims"]);
        now != kept_of_container(before)
    };
    let list = spec.get("containers");
    for (container, before) in list.items().zip(old.items_at(&["spec", "containers"])) {
        if differs(&container, before) {
            spec.forbidden(errors, "only cpu and memory resources are mutable");
        }
    }
    let list = spec.get("initContainers");
    for (container, before) in list.items().zip(old.items_at(&["spec", "initContainers"])) {
        if differs(&container, before) {
            let why = "only cpu and memory resources for init or sidecar containers are mutable";
            container.forbidden(errors, why);
        }
        let changed = container.value() != Some(before);
        if changed && !container.get("restartPolicy").is("Always") {
            for policy in container.get("resizePolicy").items() {
                if policy.get("restartPolicy").is("RestartContainer") {
                    let why = "non-sidecar init containers with a resize policy of \
                               RestartContainer cannot be resized";
                    container.forbidden(errors, why);
                }
            }
        }
    }
}

/// What of the spec must stay the same.
fn kept(pod: &Value) -> Value {
    let mut spec = pod.get("spec").cloned().unwrap_or_default();
    let whole = without_cpu_and_memory(spec.get("resources"));
    spec.set_at(&["resources"], whole);
    for list in ["containers", "initContainers"] {
        let containers = spec.at_mut(&[list]).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            *container = kept_of_container(container);
        }
    }
    spec
}

fn kept_of_container(container: &Value) -> Value {
    let mut kept = container.clone();
    kept.set_at(&["resources"], without_cpu_and_memory(container.get("resources")));
    kept
}

/// Empty and absent are the same.
fn without_cpu_and_memory(resources: Option<&Value>) -> Value {
    let mut kept = resources.filter(|own| !own.is_null()).cloned().unwrap_or_else(Value::object);
    for part in ["requests", "limits"] {
        for name in ["cpu", "memory"] {
            kept.remove_at(&[part, name]);
        }
        if kept.get(part).and_then(Value::as_object).is_none_or(meta::Map::is_empty) {
            kept.remove_at(&[part]);
        }
    }
    kept
}
