//! Validation of stateful sets.

use meta::{
    FieldErrors, Value,
    names::{is_dns1123_label, validate_annotations, validate_labels},
    selector::LabelSelector,
};

use crate::{
    core::persistent_volume_claim::validation as claim_validation,
    validation::{
        counts,
        cursor::Field,
        pod_spec::PodSpecOptions,
        pod_template::{self, runs_forever},
        ratcheting::ratchet,
        workloads::{
            amount, at_most_all, available_within_ready, collision_count, for_update,
            int_or_percent, selector, status_update, template_labels, within_replicas,
        },
    },
};

pub(crate) fn validate(object: &Value, options: PodSpecOptions, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    stateful_set_spec(&spec, true, options, errors);
}

/// On an update, what can't change any more is not looked at again.
fn stateful_set_spec(
    spec: &Field<'_>,
    is_new: bool,
    options: PodSpecOptions,
    errors: &mut FieldErrors,
) {
    let policy = spec.get("podManagementPolicy");
    if !matches!(policy.str(), "" | "OrderedReady" | "Parallel") {
        policy.invalid(errors, "must be 'OrderedReady' or 'Parallel'");
    }
    stateful_set_strategy(&spec.get("updateStrategy"), errors);
    let retention = spec.get("persistentVolumeClaimRetentionPolicy");
    for name in ["whenDeleted", "whenScaled"] {
        retention.get(name).one_of_or_default(errors, &["Retain", "Delete"]);
    }
    if is_new {
        for claim in spec.get("volumeClaimTemplates").items() {
            claim_validation::spec(&claim.get("spec"), errors);
        }
    }
    counts(spec, &["replicas", "minReadySeconds"], errors);
    spec.get("ordinals").get("start").non_negative(errors);
    if is_new {
        spec.get("serviceName").rule_if_filled(errors, is_dns1123_label);
    }
    if selector(spec, "statefulset", "", errors) {
        stateful_set_template(spec, options, errors);
    }
    runs_forever(&spec.get("template"), "StatefulSet", errors);
}

/// The template as its pods will be: claims take the place of volumes, the name comes from the set.
fn stateful_set_template(spec: &Field<'_>, options: PodSpecOptions, errors: &mut FieldErrors) {
    let template = spec.get("template");
    let mut value = template.value().cloned().unwrap_or_default();
    for name in ["subdomain", "hostname"] {
        value.remove_at(&["spec", name]);
    }
    let mut claims: Vec<&str> = spec
        .value()
        .map_or(&[][..], |spec| spec.items_at(&["volumeClaimTemplates"]))
        .iter()
        .map(|claim| claim.str_at(&["metadata", "name"]))
        .collect();
    claims.sort_unstable();
    claims.dedup();
    if !claims.is_empty() {
        let mut volumes: Vec<Value> = claims
            .iter()
            .map(|name| meta::value!({"name": (*name), "persistentVolumeClaim": {"claimName": (*name)}}))
            .collect();
        let own = value.items_at(&["spec", "volumes"]).iter();
        volumes.extend(
            own.filter(|own| claims.binary_search(&own.str_at(&["name"])).is_err()).cloned(),
        );
        value.set_at(&["spec", "volumes"], volumes);
    }
    let template = template.with(Some(&value));
    if let Ok(selector) = LabelSelector::from_object(spec.value_at(&["selector"])) {
        template_labels(&template, &selector, errors);
    }
    pod_template::validate(&template, options, errors);
    // Compat: upstream looks at both twice; equal errors are said once.
    let labels = template.get("labels").with(template.value_at(&["metadata", "labels"]));
    let notes = template.get("annotations").with(template.value_at(&["metadata", "annotations"]));
    validate_labels(labels.value(), &labels.path(), errors);
    validate_annotations(notes.value(), &notes.path(), errors);
}

pub(crate) fn validate_update(
    object: &Value,
    old: &Value,
    options: PodSpecOptions,
    errors: &mut FieldErrors,
) {
    let root = Field::root(object);
    let spec = root.get("spec");
    stateful_set_spec(&spec, false, for_update(options, old), errors);
    let (mut now, mut before) = (object.clone(), old.clone());
    for name in [
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ] {
        now.remove_at(&["spec", name]);
        before.remove_at(&["spec", name]);
    }
    if now.get("spec") != before.get("spec") {
        let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', \
                   'template', 'updateStrategy', 'revisionHistoryLimit', \
                   'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        spec.forbidden(errors, why);
    }
    ratchet(old, |old, errors| validate(old, options, errors), errors);
    status_update(object, old, errors, |status, errors| {
        let parts = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
        counts(status, &["replicas"], errors);
        counts(status, &parts, errors);
        counts(status, &["observedGeneration", "collisionCount"], errors);
        within_replicas(status, &parts, errors);
        available_within_ready(status, "cannot be greater than status.readyReplicas", errors);
    });
    collision_count(object, old, errors);
}

fn stateful_set_strategy(strategy: &Field<'_>, errors: &mut FieldErrors) {
    let rolling = strategy.get("rollingUpdate");
    let show = || {
        if !rolling.is_set() {
            return "null".to_owned();
        }
        let unavailable = rolling.value_at(&["maxUnavailable"]);
        format!(
            r#"{{"Partition":{},"MaxUnavailable":{}}}"#,
            rolling.get("partition").int_or_zero(),
            unavailable.map_or_else(|| "null".to_owned(), meta::json::to_string)
        )
    };
    match strategy.str_at(&["type"]) {
        "OnDelete" => {
            if rolling.is_set() {
                let why = "only allowed for updateStrategy 'RollingUpdate'";
                rolling.invalid_shown(errors, &show(), why);
            }
        }
        "" | "RollingUpdate" => {
            rolling.get("partition").non_negative(errors);
            let unavailable = rolling.get("maxUnavailable");
            if unavailable.is_set() {
                int_or_percent(&unavailable, errors);
                if amount(&unavailable) == 0 {
                    unavailable.invalid(errors, "cannot be 0");
                }
                at_most_all(&unavailable, errors);
            }
        }
        other => {
            let shown = format!(
                r#"{{"Type":{},"RollingUpdate":{}}}"#,
                meta::json::to_string(&other.into()),
                show()
            );
            strategy.invalid_shown(errors, &shown, "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}
