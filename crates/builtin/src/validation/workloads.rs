//! Controllers that keep pods running: Deployment, ReplicaSet, ReplicationController, StatefulSet,
//! DaemonSet, and the revisions that two of them keep.

use meta::{
    FieldErrors, Value,
    names::{is_dns1123_label, is_percent, validate_annotations, validate_labels},
    selector::LabelSelector,
};

use crate::core::persistent_volume_claim::validation as claim_validation;

use super::{
    counts,
    cursor::Field,
    label_selector,
    pod_spec::PodSpecOptions,
    pod_template::{self, runs_forever},
    ratcheting::{SPEC_SELECTOR_VALUE, ratchet},
};

pub(crate) fn deployment(object: &Value, options: PodSpecOptions, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    spec.get("replicas").non_negative(errors);
    if selector(&spec, "deployment", "invalid label selector", errors) {
        template_of_replica_set(&spec, options, errors);
    }
    deployment_strategy(&spec.get("strategy"), errors);
    counts(&spec, &["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"], errors);
    let deadline = spec.get("progressDeadlineSeconds");
    if deadline.int().is_some_and(|seconds| seconds <= spec.get("minReadySeconds").int_or_zero()) {
        deadline.invalid(errors, "must be greater than minReadySeconds");
    }
}

pub(crate) fn deployment_update(
    object: &Value,
    old: &Value,
    options: PodSpecOptions,
    errors: &mut FieldErrors,
) {
    update(object, old, options, errors, deployment, &["selector"]);
    status_update(object, old, errors, |status, errors| {
        counts(
            status,
            &[
                "observedGeneration",
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "unavailableReplicas",
                "terminatingReplicas",
                "collisionCount",
            ],
            errors,
        );
        within_replicas(status, &["updatedReplicas", "readyReplicas", "availableReplicas"], errors);
        available_within_ready(status, "cannot be greater than readyReplicas", errors);
    });
    collision_count(object, old, errors);
}

pub(crate) fn replica_set(object: &Value, options: PodSpecOptions, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    counts(&spec, &["replicas", "minReadySeconds"], errors);
    // Compat: upstream says `deployment` here too.
    if selector(&spec, "deployment", "invalid label selector", errors) {
        template_of_replica_set(&spec, options, errors);
    }
}

pub(crate) fn replica_set_update(
    object: &Value,
    old: &Value,
    options: PodSpecOptions,
    errors: &mut FieldErrors,
) {
    update(object, old, options, errors, replica_set, &["selector"]);
    replica_set_status(object, old, errors);
}

fn replica_set_status(object: &Value, old: &Value, errors: &mut FieldErrors) {
    status_update(object, old, errors, |status, errors| {
        counts(
            status,
            &[
                "replicas",
                "fullyLabeledReplicas",
                "readyReplicas",
                "availableReplicas",
                "observedGeneration",
                "terminatingReplicas",
            ],
            errors,
        );
        let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
        within_replicas(status, &parts, errors);
        available_within_ready(status, "cannot be greater than readyReplicas", errors);
    });
}

pub(crate) fn replication_controller(
    object: &Value,
    options: PodSpecOptions,
    errors: &mut FieldErrors,
) {
    let root = Field::root(object);
    let spec = root.get("spec");
    counts(&spec, &["minReadySeconds"], errors);
    spec.get("selector").require(errors);
    spec.get("replicas").non_negative(errors);
    let template = spec.get("template");
    if !template.is_set() {
        return template.required(errors, "");
    }
    if let Some(selector) = spec.value_at(&["selector"]) {
        template_labels(&template, &LabelSelector::from_labels(selector), errors);
    }
    pod_template::validate(&template, options, errors);
    runs_forever(&template, "ReplicationController", errors);
}

pub(crate) fn replication_controller_update(
    object: &Value,
    old: &Value,
    options: PodSpecOptions,
    errors: &mut FieldErrors,
) {
    update(object, old, options, errors, replication_controller, &[]);
    replica_set_status(object, old, errors);
}

pub(crate) fn daemon_set(object: &Value, options: PodSpecOptions, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let selector = spec.get("selector");
    label_selector(&selector, SPEC_SELECTOR_VALUE, errors);
    let template = spec.get("template");
    if let Ok(selector) = LabelSelector::from_object(selector.value()) {
        template_labels_even_if_empty(&template, &selector, errors);
    }
    if selector.is_set() && is_empty_selector(&selector) {
        let shown = show_selector(&selector);
        selector.invalid_shown(errors, &shown, "empty selector is invalid for daemonset");
    }
    pod_template::validate(&template, options, errors);
    runs_forever(&template, "DaemonSet", errors);
    spec.get("minReadySeconds").non_negative(errors);
    daemon_set_strategy(&spec.get("updateStrategy"), errors);
    spec.get("revisionHistoryLimit").non_negative(errors);
}

pub(crate) fn daemon_set_update(
    object: &Value,
    old: &Value,
    options: PodSpecOptions,
    errors: &mut FieldErrors,
) {
    immutable(object, old, &["selector"], errors);
    daemon_set(object, for_update(options, old), errors);
    ratchet(old, |old, errors| daemon_set(old, options, errors), errors);
    status_update(object, old, errors, |status, errors| {
        counts(
            status,
            &[
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
                "observedGeneration",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberUnavailable",
                "collisionCount",
            ],
            errors,
        );
    });
    collision_count(object, old, errors);
}

pub(crate) fn stateful_set(object: &Value, options: PodSpecOptions, errors: &mut FieldErrors) {
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
        volumes.extend(own.filter(|own| !claims.contains(&own.str_at(&["name"]))).cloned());
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

pub(crate) fn stateful_set_update(
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
    ratchet(old, |old, errors| stateful_set(old, options, errors), errors);
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

pub(crate) fn controller_revision(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    root.get("revision").non_negative(errors);
    match root.get("data").value() {
        Some(Value::Object(_)) => {}
        Some(_) => root.get("data").required(errors, "data must be a valid JSON object"),
        None => root.get("data").required(errors, "data is mandatory"),
    }
}

pub(crate) fn controller_revision_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    root.get("revision").non_negative(errors);
    root.get("data").immutable(&Field::root(old).get("data"), errors);
}

type Validate = fn(&Value, PodSpecOptions, &mut FieldErrors);

fn update(
    object: &Value,
    old: &Value,
    options: PodSpecOptions,
    errors: &mut FieldErrors,
    validate: Validate,
    fixed: &[&str],
) {
    validate(object, for_update(options, old), errors);
    immutable(object, old, fixed, errors);
    ratchet(old, |old, errors| validate(old, options, errors), errors);
}

fn for_update(options: PodSpecOptions, old: &Value) -> PodSpecOptions {
    options.for_update(old.at(&["spec", "template", "spec"]))
}

fn immutable(object: &Value, old: &Value, fixed: &[&str], errors: &mut FieldErrors) {
    let (root, old) = (Field::root(object), Field::root(old));
    let (spec, old) = (root.get("spec"), old.get("spec"));
    for name in fixed {
        let field = spec.get(name);
        if field.value() == old.get(name).value() {
            continue;
        }
        let shown = show_selector(&field);
        field.invalid_shown(errors, &shown, super::cursor::IMMUTABLE);
    }
}

fn status_update(
    object: &Value,
    old: &Value,
    errors: &mut FieldErrors,
    rule: impl Fn(&Field<'_>, &mut FieldErrors),
) {
    if object.get("status") != old.get("status") {
        rule(&Field::root(object).get("status"), errors);
    }
}

fn within_replicas(status: &Field<'_>, parts: &[&str], errors: &mut FieldErrors) {
    let all = status.get("replicas").int_or_zero();
    for part in parts {
        if status.get(part).int_or_zero() > all {
            let field = status.get(part);
            let why = "cannot be greater than status.replicas";
            field.invalid_value(errors, field.int_or_zero(), why);
        }
    }
}

fn available_within_ready(status: &Field<'_>, why: &str, errors: &mut FieldErrors) {
    let available = status.get("availableReplicas");
    if available.int_or_zero() > status.get("readyReplicas").int_or_zero() {
        available.invalid_value(errors, available.int_or_zero(), why);
    }
}

fn collision_count(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = ["status", "collisionCount"];
    let Some(before) = old.i64_at(&path) else { return };
    let now = object.i64_at(&path);
    if now.is_none_or(|now| now < before) {
        let root = Field::root(object);
        let status = root.get("status");
        let count = status.get("collisionCount");
        count.invalid_value(errors, now.unwrap_or_default(), "cannot be decremented");
    }
}

/// True if the template can be held against it.
fn selector(spec: &Field<'_>, kind: &str, why: &str, errors: &mut FieldErrors) -> bool {
    let selector = spec.get("selector");
    if selector.is_set() {
        label_selector(&selector, SPEC_SELECTOR_VALUE, errors);
        if is_empty_selector(&selector) {
            let why = format!("empty selector is invalid for {kind}");
            selector.invalid_shown(errors, &show_selector(&selector), &why);
        }
    } else {
        selector.required(errors, "");
    }
    let parses = LabelSelector::from_object(selector.value()).is_ok();
    if !parses {
        selector.invalid_shown(errors, &show_selector(&selector), why);
    }
    parses
}

fn is_empty_selector(selector: &Field<'_>) -> bool {
    selector.get("matchLabels").is_empty() && selector.get("matchExpressions").is_empty()
}

/// A selector as Go prints it: labels before expressions.
pub(crate) fn show_selector(selector: &Field<'_>) -> String {
    let Some(value) = selector.value() else { return "null".to_owned() };
    let mut members = Vec::new();
    for name in ["matchLabels", "matchExpressions"] {
        if let Some(value) = value.get(name).filter(|_| !selector.get(name).is_empty()) {
            let text = if name == "matchLabels" {
                meta::json::to_string(value)
            } else {
                let items: Vec<String> =
                    value.as_array().unwrap_or_default().iter().map(show_expression).collect();
                format!("[{}]", items.join(","))
            };
            members.push(format!("\"{name}\":{text}"));
        }
    }
    format!("{{{}}}", members.join(","))
}

fn show_expression(expression: &Value) -> String {
    let text = |name: &str| meta::json::to_string(&expression.str_at(&[name]).into());
    let values = match expression.get("values") {
        Some(values) if !expression.items_at(&["values"]).is_empty() => {
            format!(",\"values\":{}", meta::json::to_string(values))
        }
        _ => String::new(),
    };
    format!("{{\"key\":{},\"operator\":{}{values}}}", text("key"), text("operator"))
}

fn template_of_replica_set(spec: &Field<'_>, options: PodSpecOptions, errors: &mut FieldErrors) {
    let template = spec.get("template");
    if let Ok(selector) = LabelSelector::from_object(spec.value_at(&["selector"])) {
        template_labels(&template, &selector, errors);
    }
    pod_template::validate(&template, options, errors);
    runs_forever(&template, "ReplicaSet", errors);
}

/// A selector that says something must select the pods of the template.
pub(crate) fn template_labels(
    template: &Field<'_>,
    selector: &LabelSelector,
    errors: &mut FieldErrors,
) {
    if !selector.is_everything() {
        template_labels_even_if_empty(template, selector, errors);
    }
}

pub(crate) fn template_labels_even_if_empty(
    template: &Field<'_>,
    selector: &LabelSelector,
    errors: &mut FieldErrors,
) {
    let labels = template.value_at(&["metadata", "labels"]);
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    if !selector.matches_with(label) {
        let metadata = template.get("metadata");
        let why = "`selector` does not match template `labels`";
        metadata.get("labels").invalid(errors, why);
    }
}

fn deployment_strategy(strategy: &Field<'_>, errors: &mut FieldErrors) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.str_at(&["type"]) {
        "Recreate" => {
            if rolling.is_set() {
                let why = "may not be specified when strategy `type` is 'Recreate'";
                rolling.forbidden(errors, why);
            }
        }
        "" | "RollingUpdate" => {
            if !rolling.is_set() {
                return;
            }
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            int_or_percent(&unavailable, errors);
            int_or_percent(&surge, errors);
            let is_zero = |field: &Field<'_>| field.is_set() && amount(field) == 0;
            if is_zero(&unavailable) && is_zero(&surge) {
                unavailable.invalid(errors, "may not be 0 when `maxSurge` is 0");
            }
            at_most_all(&unavailable, errors);
        }
        _ => unknown_strategy(strategy, &rolling, &["Recreate", "RollingUpdate"], errors),
    }
}

/// A way to update pods that nobody knows. The whole of it is shown, as Go has it.
fn unknown_strategy(
    strategy: &Field<'_>,
    rolling: &Field<'_>,
    supported: &[&str],
    errors: &mut FieldErrors,
) {
    let supported: Vec<String> = supported.iter().map(|word| format!("\"{word}\"")).collect();
    let message = format!(
        r#"Unsupported value: {{"Type":{},"RollingUpdate":{}}}: supported values: {}"#,
        meta::json::to_string(&strategy.str_at(&["type"]).into()),
        show_rolling(rolling),
        supported.join(", ")
    );
    errors.push(meta::field::FieldReason::NotSupported, strategy.path(), message);
}

fn show_rolling(rolling: &Field<'_>) -> String {
    if !rolling.is_set() {
        return "null".to_owned();
    }
    let part = |name: &str| {
        rolling.value_at(&[name]).map_or_else(|| "0".to_owned(), meta::json::to_string)
    };
    format!(r#"{{"MaxUnavailable":{},"MaxSurge":{}}}"#, part("maxUnavailable"), part("maxSurge"))
}

fn daemon_set_strategy(strategy: &Field<'_>, errors: &mut FieldErrors) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.str_at(&["type"]) {
        "OnDelete" => {}
        "" | "RollingUpdate" => {
            if !rolling.is_set() {
                return;
            }
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            int_or_percent(&unavailable, errors);
            int_or_percent(&surge, errors);
            at_most_all(&unavailable, errors);
            at_most_all(&surge, errors);
            // Left out, `maxUnavailable` is 1 and `maxSurge` is 0.
            let some_unavailable = !unavailable.is_set() || amount(&unavailable) != 0;
            match (some_unavailable, amount(&surge) != 0) {
                (true, true) => {
                    surge.invalid(errors, "may not be set when maxUnavailable is non-zero");
                }
                (false, false) => {
                    unavailable.required(errors, "cannot be 0 when maxSurge is 0");
                }
                _ => {}
            }
        }
        _ => unknown_strategy(strategy, &rolling, &["RollingUpdate", "OnDelete"], errors),
    }
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

/// A number that isn't negative, or a percentage.
pub(crate) fn int_or_percent(field: &Field<'_>, errors: &mut FieldErrors) {
    match field.value() {
        Some(Value::String(_)) => field.rule(errors, is_percent),
        _ => field.non_negative(errors),
    }
}

/// The number, or that before the percent sign. Text that is neither is 0, as in Go.
fn amount(field: &Field<'_>) -> i64 {
    match field.value() {
        Some(Value::String(text)) => text.trim_end_matches('%').parse().unwrap_or_default(),
        _ => field.int_or_zero(),
    }
}

pub(crate) fn at_most_all(field: &Field<'_>, errors: &mut FieldErrors) {
    let is_percentage = is_percent(field.str()).is_empty();
    if is_percentage && amount(field) > 100 {
        field.invalid(errors, "must not be greater than 100%");
    }
}
