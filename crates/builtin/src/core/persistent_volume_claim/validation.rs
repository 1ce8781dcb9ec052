//! Persistent volume claims.

use meta::{
    FieldErrors, Value,
    field::RuleId,
    names::{is_dns1123_label, is_dns1123_subdomain, is_qualified_name},
};

use crate::validation::{
    cursor::Field,
    go_json, label_selector,
    pod_spec::{
        basic_resource, compare_quantities, is_native_resource, positive_quantity, quantity_value,
    },
    ratcheting::SPEC_SELECTOR_VALUE,
};

pub(crate) fn validate(claim: &Value, errors: &mut FieldErrors) {
    spec(&Field::root(claim).get("spec"), errors);
}

pub(crate) fn validate_update(claim: &Value, old: &Value, errors: &mut FieldErrors) {
    let (root, old_root) = (Field::root(claim), Field::root(old));
    update_spec(&root, &old_root, errors);
    crate::validation::ratcheting::ratchet(old, validate, errors);
    // Claims that name a group were made before there was a rule for it.
    if SOURCES.iter().any(|source| old.at(&["spec", source, "apiGroup"]).is_some()) {
        errors.retain_rules(|rule| {
            !matches!(rule, DATA_SOURCE_API_GROUP | DATA_SOURCE_REF_API_GROUP)
        });
    }
    if claim.get("status") != old.get("status") {
        for (_, quantity) in root.get("status").get("capacity").entries() {
            basic_resource(&quantity, errors);
        }
        resize_status(&root.get("status"), errors);
    }
}

const SOURCES: [&str; 2] = ["dataSource", "dataSourceRef"];

fn update_spec(claim: &Field<'_>, old: &Field<'_>, errors: &mut FieldErrors) {
    spec(&claim.get("spec"), errors);
    let (new_spec, old_spec) = (claim.get("spec"), old.get("spec"));
    let mut munged = new_spec.value().cloned().unwrap_or_default();
    let mut before = old_spec.value().cloned().unwrap_or_default();
    let is_bound = claim.str_at(&["status", "phase"]) == "Bound";
    // It is the controller that binds.
    if old_spec.str_at(&["volumeName"]).is_empty() {
        copy(&munged, &mut before, &["volumeName"]);
    }
    let annotation = |claim: &Field<'_>| -> Option<String> {
        let notes = claim.value_at(&["metadata", "annotations"])?;
        notes.get(CLASS_ANNOTATION)?.as_str().map(str::to_owned)
    };
    let (new_note, old_note) = (annotation(claim), annotation(old));
    let class = new_spec.value_at(&["storageClassName"]).and_then(Value::as_str);
    let was_unset = old_spec.value_at(&["storageClassName"]).is_none();
    let moves_to_field = was_unset
        && old_note.is_some()
        && class == old_note.as_deref()
        && (new_note.is_none() || new_note == old_note);
    if moves_to_field {
        munged.remove_at(&["storageClassName"]);
    } else {
        if new_note != old_note {
            let notes = claim.get("metadata");
            let notes = notes.get("annotations");
            let text = new_note.clone().unwrap_or_default();
            notes.get(CLASS_ANNOTATION).invalid_value(
                errors,
                text,
                crate::validation::cursor::IMMUTABLE,
            );
        }
        let may_set = class.is_some()
            && was_unset
            && old_note.as_deref().is_none_or(|note| class == Some(note));
        if may_set {
            munged.remove_at(&["storageClassName"]);
        }
    }
    if is_bound {
        if munged.at(&["resources", "requests"]).is_some() {
            copy(&before, &mut munged, &["resources", "requests", "storage"]);
        }
        copy(&before, &mut munged, &["volumeAttributesClassName"]);
    }
    // Compat: quantities are compared by their value, however they are written.
    for list in ["requests", "limits"] {
        let names = before.at(&["resources", list]).and_then(Value::as_object);
        let names: Vec<String> =
            names.into_iter().flat_map(meta::Map::iter).map(|(name, _)| name.to_string()).collect();
        for name in names {
            let at = ["resources", list, name.as_str()];
            if munged.at(&at).is_some()
                && compare_quantities(munged.at(&at), before.at(&at)).is_eq()
            {
                copy(&before, &mut munged, &at);
            }
        }
    }
    if munged != before {
        let why = format!(
            "spec is immutable after creation except resources.requests and \
             volumeAttributesClassName for bound claims\n{}",
            go_json::diff("PersistentVolumeClaimSpec", &before, &munged)
        );
        new_spec.forbidden(errors, &why);
    }
    let size = ["resources", "requests", "storage"];
    let shrinks = compare_quantities(new_spec.value_at(&size), old_spec.value_at(&size)).is_lt();
    let capacity = old.value_at(&["status", "capacity", "storage"]);
    if shrinks && compare_quantities(new_spec.value_at(&size), capacity).is_le() {
        let resources = new_spec.get("resources");
        let requests = resources.get("requests");
        requests.get("storage").forbidden(errors, "field can not be less than status.capacity");
    }
    // Compat: upstream leaves `spec` out of this path.
    let mode = claim.get("volumeMode").with(new_spec.value_at(&["volumeMode"]));
    mode.immutable(&old_spec.get("volumeMode"), errors);
    attributes_class(claim, old, errors);
}

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

fn attributes_class(claim: &Field<'_>, old: &Field<'_>, errors: &mut FieldErrors) {
    let spec = claim.get("spec");
    let class = spec.get("volumeAttributesClassName");
    if class.value() == old.value_at(&["spec", "volumeAttributesClassName"])
        || old.value_at(&["status", "currentVolumeAttributesClassName"]).is_none()
    {
        return;
    }
    if !class.is_set() {
        let why = "update to nil is forbidden when status.currentVolumeAttributesClassName is not \
                   nil";
        class.forbidden(errors, why);
    } else if class.is_empty() {
        let why = "update to empty string is forbidden when \
                   status.currentVolumeAttributesClassName is not nil";
        class.forbidden(errors, why);
    }
}

/// What a resize has got to.
fn resize_status(status: &Field<'_>, errors: &mut FieldErrors) {
    let states = status.get("allocatedResourceStatuses");
    for (name, state) in states.entries() {
        claim_resource_name(name, &states, errors);
        if !RESIZE_STATES.contains(&state.str()) {
            errors.not_supported(states.path(), name, &RESIZE_STATES);
        }
    }
    let amounts = status.get("allocatedResources");
    for (name, amount) in amounts.entries() {
        let before = errors.count();
        if claim_resource_name(name, &amounts, errors) {
            basic_resource(&amount, errors);
            if errors.count() == before {
                quantity_value("storage", &amount, errors);
            }
        }
    }
}

const RESIZE_STATES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

fn claim_resource_name(name: &str, at: &Field<'_>, errors: &mut FieldErrors) -> bool {
    let wrong = is_qualified_name(name);
    for why in &wrong {
        at.invalid_value(errors, name, why);
    }
    if !wrong.is_empty() {
        return false;
    }
    // A name without a domain, or with one of Kubernetes', is one of those that it knows.
    let is_known = name == "storage" || !is_native_resource(name);
    if !is_known {
        errors.not_supported(at.path(), name, &["storage"]);
    }
    is_known
}

/// Puts what is at a path in one tree in the same place in another.
fn copy(from: &Value, to: &mut Value, path: &[&str]) {
    match from.at(path) {
        Some(value) => to.set_at(path, value.clone()),
        None => drop(to.remove_at(path)),
    }
}

pub(crate) fn spec(spec: &Field<'_>, errors: &mut FieldErrors) {
    let modes = spec.get("accessModes");
    if modes.is_empty() {
        modes.required(errors, "at least 1 access mode is required");
    }
    let selector = spec.get("selector");
    label_selector(&selector, SPEC_SELECTOR_VALUE, errors);
    access_modes(&modes, errors);
    let resources = spec.get("resources");
    let size = resources.key("storage").with(resources.value_at(&["requests", "storage"]));
    if !size.is_set() {
        size.required(errors, "");
    } else if positive_quantity(&size, errors) {
        quantity_value("storage", &size, errors);
    }
    spec.get("storageClassName").rule_if_filled(errors, is_dns1123_subdomain);
    spec.get("volumeMode").one_of(errors, &["Block", "Filesystem"]);
    data_sources(spec, errors);
    spec.get("volumeAttributesClassName").rule_if_filled(errors, is_dns1123_subdomain);
}

/// Used by persistent volumes as well.
pub(crate) fn access_modes(modes: &Field<'_>, errors: &mut FieldErrors) {
    let supported = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let (mut once_pod, mut others) = (false, false);
    for mode in modes.items() {
        if mode.is("ReadWriteOncePod") {
            once_pod = true;
        } else if supported.contains(&mode.str()) {
            others = true;
        } else {
            errors.not_supported(modes.path(), mode.str(), &supported);
        }
    }
    if once_pod && others {
        modes.forbidden(errors, "may not use ReadWriteOncePod with other access modes");
    }
}

fn data_sources(spec: &Field<'_>, errors: &mut FieldErrors) {
    let (source, reference) = (spec.get("dataSource"), spec.get("dataSourceRef"));
    for (source, group) in
        [(&source, DATA_SOURCE_API_GROUP), (&reference, DATA_SOURCE_REF_API_GROUP)]
    {
        if source.is_set() {
            data_source(source, group, errors);
        }
    }
    if !source.is_set() || !reference.is_set() {
        return;
    }
    // Compat: what upstream shows as the value is the path itself.
    let shown = "{}";
    if !reference.get("namespace").is_empty() {
        let why = "may not be specified when dataSourceRef.namespace is specified";
        spec.invalid_shown(errors, shown, why);
    } else if ["apiGroup", "kind", "name"]
        .iter()
        .any(|part| source.value_at(&[part]) != reference.value_at(&[part]))
    {
        spec.invalid_shown(errors, shown, "must match dataSourceRef");
    }
}

/// The API group of a claim's data source is a domain.
pub(crate) const DATA_SOURCE_API_GROUP: RuleId = RuleId::new("data source API group");
pub(crate) const DATA_SOURCE_REF_API_GROUP: RuleId = RuleId::new("data source ref API group");

fn data_source(source: &Field<'_>, group_rule: RuleId, errors: &mut FieldErrors) {
    source.get("name").require(errors);
    source.get("kind").require(errors);
    let (group, kind) = (source.get("apiGroup"), source.str_at(&["kind"]));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        source.invalid_value(errors, kind, why);
    }
    errors.with_rule(group_rule, |errors| group.rule_if_filled(errors, is_dns1123_subdomain));
    source.get("namespace").rule_if_filled(errors, is_dns1123_label);
}
