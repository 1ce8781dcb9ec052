//! Pods: on create, and what may change of them afterwards.

pub(crate) mod annotations;
pub(crate) mod resize;
mod status;

use meta::{FieldErrors, Value};

use crate::validation::{
    by_name,
    cursor::Field,
    go_json,
    pod_spec::{
        self, Owner, PodSpecOptions, added_tolerations_only, image_whitespace, removed_gates_only,
    },
    ratcheting::ratchet,
};

pub(crate) fn validate(pod: &Value, options: PodSpecOptions, errors: &mut FieldErrors) {
    let root = Field::root(pod);
    metadata_and_spec(&root, options, errors);
    let spec = root.get("spec");
    if !spec.get("ephemeralContainers").is_empty() {
        spec.get("ephemeralContainers").forbidden(errors, "cannot be set on create");
    }
    if !spec.get("nodeName").is_empty() && !spec.get("schedulingGates").is_empty() {
        let why = "cannot be set until all schedulingGates have been cleared";
        spec.get("nodeName").forbidden(errors, why);
    }
    let metadata = root.get("metadata");
    annotations::match_fields(&metadata.get("annotations"), &spec, errors);
}

fn metadata_and_spec(pod: &Field<'_>, options: PodSpecOptions, errors: &mut FieldErrors) {
    let (metadata, spec) = (pod.get("metadata"), pod.get("spec"));
    annotations::validate(&metadata.get("annotations"), &spec, errors);
    let owner = Owner {
        is_pod: true,
        name: metadata.str_at(&["name"]),
        is_mirror: metadata.value_at(&["annotations", annotations::MIRROR]).is_some(),
        options,
    };
    pod_spec::validate(&spec, &owner, errors);
    if spec.get("serviceAccountName").is_empty() {
        for volume in spec.get("volumes").items() {
            let projected = volume.get("projected");
            for source in projected.get("sources").items() {
                if source.get("serviceAccountToken").is_set() {
                    let why = "must not be specified when serviceAccountName is not set";
                    source.get("serviceAccountToken").forbidden(errors, why);
                }
            }
        }
    }
    for list in ["containers", "initContainers"] {
        for container in spec.get(list).items() {
            image_whitespace(&container, errors);
        }
    }
}

/// A PUT or PATCH of the pod itself.
pub(crate) fn validate_update(
    pod: &Value,
    old: &Value,
    options: PodSpecOptions,
    errors: &mut FieldErrors,
) {
    let (root, old_root) = (Field::root(pod), Field::root(old));
    metadata_and_spec(&root, options.for_update(old.get("spec")), errors);
    update_annotations(&root, &old_root, errors);
    update_spec(&root.get("spec"), &old_root.get("spec"), errors);
    ratchet(old, |old, errors| validate(old, options, errors), errors);
}

/// `status`: nothing else of the pod is looked at.
pub(crate) fn validate_status(pod: &Value, old: &Value, errors: &mut FieldErrors) {
    let (root, old_root) = (Field::root(pod), Field::root(old));
    update_annotations(&root, &old_root, errors);
    status::validate_update(&root, &old_root, errors);
}

fn update_annotations(pod: &Field<'_>, old: &Field<'_>, errors: &mut FieldErrors) {
    let (new, old) = (pod.get("metadata"), old.get("metadata"));
    annotations::validate_update(&new.get("annotations"), &old.get("annotations"), errors);
}

/// `ephemeralcontainers`: more of them, nothing else.
pub(crate) fn validate_ephemeral_containers(
    pod: &Value,
    old: &Value,
    options: PodSpecOptions,
    errors: &mut FieldErrors,
) {
    let (root, old_root) = (Field::root(pod), Field::root(old));
    metadata_and_spec(&root, options, errors);
    if old_root.value_at(&["metadata", "annotations", annotations::MIRROR]).is_some() {
        let why = "static pods do not support ephemeral containers";
        return errors.forbidden(meta::FieldPath::new(""), why);
    }
    let spec = root.get("spec");
    let containers = spec.get("ephemeralContainers");
    let by_name =
        by_name(spec.value().map_or(&[][..], |spec| spec.items_at(&["ephemeralContainers"])));
    let mut differ = go_json::Differ::default();
    for before in old.items_at(&["spec", "ephemeralContainers"]) {
        let name = meta::field::quote(before.str_at(&["name"]));
        match by_name.get(before.str_at(&["name"])).copied() {
            None => {
                let why = format!("existing ephemeral containers {name} may not be removed\n");
                containers.forbidden(errors, &why);
            }
            // Beyond the bound errors are only counted.
            Some(now) if now != before && errors.is_full() => containers.forbidden(errors, ""),
            Some(now) if now != before => {
                let diff = go_json::diff_with(&mut differ, "EphemeralContainer", before, now);
                let why =
                    format!("existing ephemeral containers {name} may not be changed\n{diff}");
                containers.forbidden(errors, &why);
            }
            Some(_) => {}
        }
    }
}

fn update_spec(spec: &Field<'_>, old: &Field<'_>, errors: &mut FieldErrors) {
    for list in ["containers", "initContainers"] {
        let containers = spec.get(list);
        if containers.len() != old.get(list).len() {
            return containers.forbidden(errors, "pod updates may not add or remove containers");
        }
        for container in containers.items() {
            container.get("image").require(errors);
            image_whitespace(&container, errors);
        }
    }
    if !active_deadline(spec, old, errors) {
        return;
    }
    added_tolerations_only(&spec.get("tolerations"), &old.get("tolerations"), errors);
    removed_gates_only(&spec.get("schedulingGates"), &old.get("schedulingGates"), errors);
    let (Some(new), Some(old_value)) = (spec.value(), old.value()) else { return };
    if new == old_value {
        // Most updates are about the metadata.
        return;
    }
    let mut munged = new.clone();
    keep_updatable(&mut munged, old_value);
    if !old.get("schedulingGates").is_empty() {
        keep_gated(spec, &mut munged, old_value, errors);
    }
    if munged != *old_value {
        let why = format!(
            "pod updates may not change fields other than {}\n{}",
            UPDATABLE.join(","),
            go_json::diff("PodSpec", old_value, &munged)
        );
        spec.forbidden(errors, &why);
    }
}

const UPDATABLE: [&str; 5] = [
    "`spec.containers[*].image`",
    "`spec.initContainers[*].image`",
    "`spec.activeDeadlineSeconds`",
    "`spec.tolerations` (only additions to existing tolerations)",
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
];

/// False if there is nothing more to say.
fn active_deadline(spec: &Field<'_>, old: &Field<'_>, errors: &mut FieldErrors) -> bool {
    let seconds = spec.get("activeDeadlineSeconds");
    let before = old.get("activeDeadlineSeconds").int();
    match (seconds.int(), before) {
        (Some(now), _) if !(0..=i64::from(i32::MAX)).contains(&now) => {
            seconds.in_range(errors, 0, i64::from(i32::MAX));
            false
        }
        (Some(now), Some(before)) if before < now => {
            seconds.invalid(errors, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            seconds.invalid(errors, "must not update from a positive integer to nil value");
            true
        }
        _ => true,
    }
}

/// Takes over from the old spec what may change.
fn keep_updatable(spec: &mut Value, old: &Value) {
    for list in ["containers", "initContainers"] {
        let before = old.items_at(&[list]);
        let containers = spec.at_mut(&[list]).and_then(Value::as_array_mut);
        for (container, before) in containers.into_iter().flatten().zip(before) {
            keep(container, before, "image");
        }
    }
    for name in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        keep(spec, old, name);
    }
    let grace = "terminationGracePeriodSeconds";
    if old.i64_at(&[grace]).is_some_and(|grace| grace < 0) && spec.i64_at(&[grace]) == Some(1) {
        keep(spec, old, grace);
    }
}

fn keep(value: &mut Value, old: &Value, name: &str) {
    match old.get(name) {
        Some(old) => value.set_at(&[name], old.clone()),
        None => drop(value.remove_at(&[name])),
    }
}

/// As long as a pod is gated, where it may go can be narrowed.
fn keep_gated(spec: &Field<'_>, munged: &mut Value, old: &Value, errors: &mut FieldErrors) {
    let selector = spec.get("nodeSelector");
    let before = old.get("nodeSelector").and_then(Value::as_object);
    let changed = before
        .into_iter()
        .flat_map(meta::Map::iter)
        .any(|(key, value)| selector.value_at(&[key]) != Some(value));
    if changed {
        let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        selector.invalid(errors, why);
    }
    keep(munged, old, "nodeSelector");

    let affinity = spec.get("affinity");
    let affinity = affinity.get("nodeAffinity");
    let required = affinity.get(REQUIRED);
    let terms = required.get("nodeSelectorTerms");
    let before = old.items_at(&["affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms"]);
    if !before.is_empty() && before.len() != terms.len() {
        let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        terms.invalid(errors, why);
    } else {
        for (term, before) in terms.items().zip(before) {
            if !only_adds(term.value().unwrap_or(&Value::Null), before) {
                term.invalid(errors, "only additions are allowed (no mutations or deletions)");
            }
        }
    }
    match old.at(&["affinity", "nodeAffinity"]) {
        Some(before) => munged.set_at(&["affinity", "nodeAffinity"], before.clone()),
        None => drop(munged.remove_at(&["affinity", "nodeAffinity"])),
    }
    let is_empty =
        munged.get("affinity").and_then(Value::as_object).is_some_and(meta::Map::is_empty);
    if is_empty && old.get("affinity").is_none() {
        munged.remove_at(&["affinity"]);
    }
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

fn only_adds(term: &Value, old: &Value) -> bool {
    let lists = ["matchExpressions", "matchFields"]
        .map(|list| (term.items_at(&[list]), old.items_at(&[list])));
    if lists.iter().all(|(_, old)| old.is_empty()) {
        return lists.iter().all(|(new, _)| new.is_empty());
    }
    lists.iter().all(|(new, old)| new.starts_with(old))
}
