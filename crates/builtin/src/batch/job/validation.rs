//! Validation of jobs.

pub(crate) mod status;

use std::collections::BTreeSet;

use meta::{
    FieldErrors, Value,
    field::{FieldReason, quote},
    names::{is_dns1123_label, is_qualified_name},
    selector::LabelSelector,
};

use crate::validation::{
    counts,
    cursor::{Field, IMMUTABLE},
    label_selector,
    names::domain_prefixed_path,
    pod_spec::PodSpecOptions,
    pod_template,
    ratcheting::{SPEC_SELECTOR_VALUE, ratchet},
    workloads::{show_selector, template_labels_even_if_empty},
};

pub(crate) fn validate(object: &Value, options: PodSpecOptions, errors: &mut FieldErrors) {
    let root = Field::root(object);
    generated_selector(&root, errors);
    let spec = root.get("spec");
    spec_with_selector(&spec, options, errors);
    let completions = spec.get("completions").int_or_zero();
    if spec.get("completionMode").is("Indexed") && completions > 0 {
        let metadata = root.get("metadata");
        let name = metadata.get("name");
        let host = format!("{}-{}", name.str(), completions - 1);
        if !is_dns1123_label(&host).is_empty() {
            let why = format!("will not able to create pod with invalid DNS label: {host}");
            name.invalid_value(errors, name.str(), &why);
        }
    }
}

/// Unless a client brings its own, the server makes a selector from the job's uid.
fn generated_selector(job: &Field<'_>, errors: &mut FieldErrors) {
    let spec = job.get("spec");
    let selector = spec.get("selector");
    if spec.get("manualSelector").bool() || !selector.is_set() {
        return;
    }
    let (uid, name) = (job.str_at(&["metadata", "uid"]), job.str_at(&["metadata", "name"]));
    let template = spec.get("template");
    let metadata = template.get("metadata");
    let labels = metadata.get("labels");
    let expected = [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    for (key, value) in expected {
        let label = labels.key(key);
        let why = format!("must be '{value}'");
        if !label.is_set() {
            label.required(errors, &why);
        } else if label.str() != value {
            label.with(labels.value()).invalid(errors, &why);
        }
    }
    let of = |key: &str| expected.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
    // One that can't be read is complained about elsewhere.
    let differs = LabelSelector::from_object(selector.value()).is_ok_and(|s| !s.matches_with(of));
    if differs {
        selector.invalid_shown(errors, &show_selector(&selector), "`selector` not auto-generated");
    }
}

fn spec_with_selector(spec: &Field<'_>, options: PodSpecOptions, errors: &mut FieldErrors) {
    job_spec(spec, options, errors);
    let selector = spec.get("selector");
    if selector.is_set() {
        label_selector(&selector, SPEC_SELECTOR_VALUE, errors);
    } else {
        selector.required(errors, "");
    }
    if let Ok(selector) = LabelSelector::from_object(selector.value()) {
        template_labels_even_if_empty(&spec.get("template"), &selector, errors);
    }
}

pub(crate) fn job_spec(spec: &Field<'_>, options: PodSpecOptions, errors: &mut FieldErrors) {
    counts(
        spec,
        &[
            "parallelism",
            "completions",
            "activeDeadlineSeconds",
            "backoffLimit",
            "ttlSecondsAfterFinished",
            "backoffLimitPerIndex",
            "maxFailedIndexes",
        ],
        errors,
    );
    let per_index = spec.get("backoffLimitPerIndex");
    if spec.get("maxFailedIndexes").is_set() && !per_index.is_set() {
        per_index.required(errors, "when maxFailedIndexes is specified");
    }
    let manager = spec.get("managedBy");
    if manager.is_set() {
        domain_prefixed_path(&manager, errors);
        if manager.len() > 63 {
            errors.too_long(manager.path(), 63);
        }
    }
    completion_mode(spec, errors);
    pod_failure_policy(spec, errors);
    success_policy(spec, errors);
    let replacement = spec.get("podReplacementPolicy");
    if spec.get("podFailurePolicy").is_set() {
        replacement.one_of(errors, &["Failed"]);
    } else {
        replacement.one_of(errors, &["Failed", "TerminatingOrFailed"]);
    }
    let template = spec.get("template");
    pod_template::validate(&template, options, errors);
    let pod = template.get("spec");
    let policy = pod.get("restartPolicy");
    match policy.str() {
        "" | "Always" => policy.required(errors, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if spec.get("podFailurePolicy").is_set() => {
            let why = "only \"Never\" is supported when podFailurePolicy is specified";
            policy.invalid(errors, why);
        }
        "OnFailure" | "Never" => {}
        _ => policy.not_supported(errors, &["OnFailure", "Never"]),
    }
}

/// How many indexes an indexed job may have, and how many of them at once.
pub(crate) fn completion_mode(spec: &Field<'_>, errors: &mut FieldErrors) {
    let (completions, parallelism) = (spec.get("completions"), spec.get("parallelism"));
    let (max_failed, per_index) = (spec.get("maxFailedIndexes"), spec.get("backoffLimitPerIndex"));
    let mode = spec.get("completionMode");
    mode.one_of(errors, &["NonIndexed", "Indexed"]);
    if !mode.is("Indexed") {
        if !mode.is_set() || mode.is("NonIndexed") {
            for field in [per_index, max_failed] {
                if field.is_set() {
                    field.invalid(errors, "requires indexed completion mode");
                }
            }
        }
        return;
    }
    if !completions.is_set() {
        completions.required(errors, "when completion mode is Indexed");
    }
    let at_most = |field: &Field<'_>, max: i64, rest: &str, errors: &mut FieldErrors| {
        if field.int_or_zero() > max {
            field.invalid(errors, &format!("must be less than or equal to {max}{rest}"));
        }
    };
    at_most(&parallelism, 100_000, " when completion mode is Indexed", errors);
    if let (Some(all), Some(failed)) = (completions.int(), max_failed.int())
        && failed > all
    {
        max_failed.invalid(errors, "must be less than or equal to completions");
    }
    at_most(&max_failed, 100_000, "", errors);
    if completions.int_or_zero() > 100_000 && per_index.is_set() {
        if !max_failed.is_set() {
            max_failed.required(errors, "must be specified when completions is above 100000");
        }
        let rest = " when completions are above 100000 and used with backoff limit per index";
        at_most(&parallelism, 10_000, rest, errors);
        at_most(&max_failed, 10_000, rest, errors);
    }
}

/// An error about a value that is too large to be shown.
pub(crate) fn invalid_unseen(field: &Field<'_>, why: &str, errors: &mut FieldErrors) {
    errors.push(FieldReason::Invalid, field.path(), format!("Invalid value: {why}"));
}

pub(crate) fn require_word(field: &Field<'_>, supported: &[&str], errors: &mut FieldErrors) {
    if field.is_empty() {
        let words: Vec<String> = supported.iter().map(|word| quote(word)).collect();
        field.required(errors, &format!("valid values: [{}]", words.join(" ")));
    } else {
        field.one_of(errors, supported);
    }
}

pub(crate) fn pod_failure_policy(spec: &Field<'_>, errors: &mut FieldErrors) {
    let policy = spec.get("podFailurePolicy");
    let rules = policy.get("rules");
    if rules.len() > 20 {
        errors.too_many(rules.path(), rules.len(), 20);
    }
    let containers: BTreeSet<&str> = ["containers", "initContainers"]
        .iter()
        .filter_map(|list| spec.value_at(&["template", "spec", list]).and_then(Value::as_array))
        .flatten()
        .map(|container| container.str_at(&["name"]))
        .collect();
    for rule in rules.items() {
        let action = rule.get("action");
        if action.is("FailIndex") && !spec.get("backoffLimitPerIndex").is_set() {
            action.invalid(errors, "requires the backoffLimitPerIndex to be set");
        }
        require_word(&action, &["Count", "FailIndex", "FailJob", "Ignore"], errors);
        let (codes, conditions) = (rule.get("onExitCodes"), rule.get("onPodConditions"));
        if codes.is_set() {
            exit_codes(&codes, &containers, errors);
        }
        if conditions.len() > 20 {
            errors.too_many(conditions.path(), conditions.len(), 20);
        }
        for condition in conditions.items() {
            condition.get("type").rule(errors, is_qualified_name);
            require_word(&condition.get("status"), &["False", "True", "Unknown"], errors);
        }
        match (codes.is_set(), !conditions.is_empty()) {
            (true, true) => {
                let why = "specifying both OnExitCodes and OnPodConditions is not supported";
                invalid_unseen(&rule, why, errors);
            }
            (false, false) => {
                let why = "specifying one of OnExitCodes and OnPodConditions is required";
                invalid_unseen(&rule, why, errors);
            }
            _ => {}
        }
    }
}

pub(crate) fn exit_codes(codes: &Field<'_>, containers: &BTreeSet<&str>, errors: &mut FieldErrors) {
    require_word(&codes.get("operator"), &["In", "NotIn"], errors);
    let name = codes.get("containerName");
    if name.is_set() && !containers.contains(name.str()) {
        let why = "must be one of the container or initContainer names in the pod template";
        name.invalid(errors, why);
    }
    let values = codes.get("values");
    if values.is_empty() {
        values.invalid(errors, "at least one value is required");
    } else if values.len() > 255 {
        errors.too_many(values.path(), values.len(), 255);
    }
    let (mut seen, mut last, mut is_ordered) = (BTreeSet::new(), None, true);
    for value in values.items() {
        let code = value.int_or_zero();
        if codes.get("operator").is("In") && code == 0 {
            value.invalid(errors, "must not be 0 for the In operator");
        }
        if !seen.insert(code) {
            value.duplicate(errors);
        }
        is_ordered &= last.is_none_or(|last| last <= code);
        last = Some(code);
    }
    if !is_ordered {
        values.invalid(errors, "must be ordered");
    }
}

pub(crate) fn success_policy(spec: &Field<'_>, errors: &mut FieldErrors) {
    let policy = spec.get("successPolicy");
    if !policy.is_set() {
        return;
    }
    if !spec.get("completionMode").is("Indexed") {
        return policy.invalid(errors, "requires indexed completion mode");
    }
    let rules = policy.get("rules");
    if rules.is_empty() {
        let why = "at least one rules must be specified when the successPolicy is specified";
        rules.required(errors, why);
    }
    if rules.len() > 20 {
        errors.too_many(rules.path(), rules.len(), 20);
    }
    let completions = spec.get("completions").int_or_zero();
    for rule in rules.items() {
        let (count, indexes) = (rule.get("succeededCount"), rule.get("succeededIndexes"));
        if !count.is_set() && !indexes.is_set() {
            let why = "at least one of succeededCount or succeededIndexes must be specified";
            rule.required(errors, why);
        }
        let mut total = 0;
        if indexes.is_set() {
            if indexes.len() > 64 * 1024 {
                errors.too_long(indexes.path(), 64 * 1024);
            }
            match count_indexes(indexes.str(), completions) {
                Ok(count) => total = count,
                Err(why) => {
                    indexes.invalid(errors, &format!("error parsing succeededIndexes: {why}"));
                }
            }
        }
        if let Some(succeeded) = count.int() {
            count.non_negative(errors);
            if succeeded > completions {
                let why = format!(
                    "must be less than or equal to {completions} (the number of specified \
                     completions)"
                );
                count.invalid(errors, &why);
            }
            if indexes.is_set() && succeeded > total {
                let why = format!(
                    "must be less than or equal to {total} (the number of indexes in the \
                     specified succeededIndexes field)"
                );
                count.invalid(errors, &why);
            }
        }
    }
}

/// How many indexes a text such as `1,3-5` has.
pub(crate) fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let (mut total, mut last): (i64, Option<i64>) = (0, None);
    for interval in text.split(',') {
        let (first, end) = index_interval(interval, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(not_increasing(last, first));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

/// `3` or `3-5`: first and last.
pub(crate) fn index_interval(text: &str, completions: i64) -> Result<(i64, i64), String> {
    let index = |text: &str| -> Result<i64, String> {
        let index: i64 = text
            .parse()
            .map_err(|_| format!("cannot convert string to integer for index: {}", quote(text)))?;
        if index >= completions {
            return Err(format!("too large index: {}", quote(text)));
        }
        Ok(index)
    };
    match *text.split('-').collect::<Vec<_>>() {
        [one] => index(one).map(|one| (one, one)),
        [first, end] => {
            let (first, end) = (index(first)?, index(end)?);
            if first < end { Ok((first, end)) } else { Err(not_increasing(first, end)) }
        }
        _ => Err(format!(
            "the fragment {} violates the requirement that an index interval can have at most two \
             parts separated by '-'",
            quote(text)
        )),
    }
}

pub(crate) fn not_increasing(last: i64, next: i64) -> String {
    format!("non-increasing order, previous: {last}, current: {next}")
}

pub(crate) fn validate_update(
    object: &Value,
    old: &Value,
    options: PodSpecOptions,
    errors: &mut FieldErrors,
) {
    let (root, old_root) = (Field::root(object), Field::root(old));
    let (spec, before) = (root.get("spec"), old_root.get("spec"));
    let for_update = options.for_update(old.at(&["spec", "template", "spec"]));
    validate(object, for_update, errors);
    // Compat: some of it is said twice.
    spec_with_selector(&spec, for_update, errors);
    let completions = spec.get("completions");
    let changed = completions.value() != before.get("completions").value();
    if !spec.get("completionMode").is("Indexed") {
        completions.immutable(&before.get("completions"), errors);
    } else if changed
        && completions.is_set()
        && completions.value() != spec.get("parallelism").value()
    {
        completions.invalid(errors, "can only be modified in tandem with spec.parallelism");
    }
    let selector = spec.get("selector");
    if selector.value() != before.get("selector").value() {
        selector.invalid_shown(errors, &show_selector(&selector), IMMUTABLE);
    }
    template_update(object, old, errors);
    for name in
        ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"]
    {
        spec.get(name).immutable(&before.get(name), errors);
    }
    ratchet(old, |old, errors| validate(old, options, errors), errors);
}

/// Whether no pod of the job has the template that is to change.
fn has_mutable_template(job: &Value) -> bool {
    let is_started = job.at(&["status", "startTime"]).is_some_and(|time| !time.is_null());
    let says_suspended = || {
        job.items_at(&["status", "conditions"]).iter().any(|condition| {
            condition.str_at(&["type"]) == "Suspended" && condition.str_at(&["status"]) == "True"
        })
    };
    job.bool_at(&["spec", "suspend"])
        && (!is_started || says_suspended())
        && job.i64_at(&["status", "active"]).unwrap_or_default() == 0
}

/// The scheduling directives and resources of a suspended job may change while it has no pods: it was never started, or its
/// condition says that it is suspended.
fn template_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = ["spec", "template"];
    let (Some(new), Some(old_template)) = (object.at(&path), old.at(&path)) else { return };
    let mut before = old_template.clone();
    let is_mutable = has_mutable_template(old);
    if is_mutable {
        for path in [
            &["spec", "nodeSelector"][..],
            &["spec", "tolerations"],
            &["spec", "schedulingGates"],
            &["spec", "affinity", "nodeAffinity"],
            &["metadata", "annotations"],
            &["metadata", "labels"],
        ] {
            match new.at(path) {
                Some(value) => before.set_at(path, value.clone()),
                None => drop(before.remove_at(path)),
            }
        }
        for list in ["containers", "initContainers"] {
            let containers = new.items_at(&["spec", list]);
            let olds = before.at_mut(&["spec", list]).and_then(Value::as_array_mut);
            for (old, new) in olds.into_iter().flatten().zip(containers) {
                if old.get("name") == new.get("name") {
                    match new.get("resources") {
                        Some(resources) => old.set_at(&["resources"], resources.clone()),
                        None => drop(old.remove_at(&["resources"])),
                    }
                }
            }
        }
        // An affinity that had nothing but that of nodes is gone with it, and an empty one comes alone.
        let affinity = ["spec", "affinity"];
        let is_empty = |value: &Value| value.as_object().is_some_and(meta::Map::is_empty);
        match (before.at(&affinity), new.at(&affinity)) {
            (Some(own), None) if is_empty(own) => drop(before.remove_at(&affinity)),
            (None, Some(own)) if is_empty(own) => before.set_at(&affinity, Value::object()),
            _ => {}
        }
    }
    // The metadata of its pods may change as well.
    let differs = if is_mutable { new.get("spec") != before.get("spec") } else { *new != before };
    if differs {
        let root = Field::root(object);
        let spec = root.get("spec");
        let template = spec.get("template");
        if is_mutable {
            template.get("spec").invalid(errors, IMMUTABLE);
        } else {
            template.invalid(errors, IMMUTABLE);
        }
    }
}
