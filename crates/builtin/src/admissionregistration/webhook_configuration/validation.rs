//! Validation of webhook configurations.

use std::collections::BTreeSet;

use meta::{
    FieldErrors, Value,
    field::RuleId,
    names::{
        is_dns1035_label, is_dns1123_subdomain, validate_webhook_service, validate_webhook_url,
    },
};

use crate::validation::{
    admission::{expressions::ExpressionScope, match_conditions, rule_with_operations},
    cursor::Field,
    label_selector,
    ratcheting::ratchet,
};

/// A configuration of mutating or of validating webhooks.
pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    webhooks_since(object, None, errors);
}

fn webhooks_since(object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let mut names = BTreeSet::new();
    let conditions = |object: &Value| -> Vec<Option<Value>> {
        object
            .items_at(&["webhooks"])
            .iter()
            .map(|own| own.get("matchConditions").cloned())
            .collect()
    };
    // Compat: an expression that is stored already is not checked again.
    let same_conditions = old.is_some_and(|old| conditions(old) == conditions(object));
    for hook in root.get("webhooks").items() {
        webhook(&hook, errors);
        if !same_conditions {
            let scope = ExpressionScope::new(false, false);
            match_conditions(&hook.get("matchConditions"), &scope, errors);
        }
        review_versions(&hook.get("admissionReviewVersions"), errors);
        let name = hook.get("name");
        if !name.is_empty() && !names.insert(name.str().to_owned()) {
            errors.with_rule(WEBHOOK_NAME_UNIQUE, |errors| name.duplicate(errors));
        }
    }
}

/// What `v1beta1` allowed of a webhook and `v1` does not.
pub(crate) const WEBHOOK_NAME_UNIQUE: RuleId = RuleId::new("webhook name unique");

pub(crate) const WEBHOOK_SIDE_EFFECTS: RuleId = RuleId::new("webhook side effects");

pub(crate) const WEBHOOK_REVIEW_VERSION_KNOWN: RuleId = RuleId::new("webhook review version known");

/// The values of a webhook's label selectors.
pub(crate) const WEBHOOK_SELECTOR_VALUE: RuleId = RuleId::new("webhook selector value");

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    webhooks_since(object, Some(old), errors);
    ratchet(old, validate, errors);
}

fn webhook(hook: &Field<'_>, errors: &mut FieldErrors) {
    fully_qualified_name(&hook.get("name"), errors);
    for rule in hook.get("rules").items() {
        rule_with_operations(&rule, errors);
    }
    hook.get("failurePolicy").one_of(errors, &["Fail", "Ignore"]);
    hook.get("matchPolicy").one_of(errors, &["Equivalent", "Exact"]);
    let effects = hook.get("sideEffects");
    errors.with_rule(WEBHOOK_SIDE_EFFECTS, |errors| {
        if effects.is_set() {
            effects.one_of(errors, &["None", "NoneOnDryRun"]);
        } else {
            effects.required(errors, "must specify one of None, NoneOnDryRun");
        }
    });
    let timeout = hook.get("timeoutSeconds");
    if timeout.int().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        timeout.invalid(errors, "the timeout value must be between 1 and 30 seconds");
    }
    for name in ["namespaceSelector", "objectSelector"] {
        label_selector(&hook.get(name), WEBHOOK_SELECTOR_VALUE, errors);
    }
    hook.get("reinvocationPolicy").one_of(errors, &["IfNeeded", "Never"]);
    client_config(&hook.get("clientConfig"), errors);
}

fn fully_qualified_name(name: &Field<'_>, errors: &mut FieldErrors) {
    if !name.require(errors) {
        return;
    }
    let wrong = is_dns1123_subdomain(name.str());
    if !wrong.is_empty() {
        name.invalid(errors, &wrong.join(","));
    } else if name.str().split('.').count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        name.invalid(errors, why);
    }
}

fn client_config(config: &Field<'_>, errors: &mut FieldErrors) {
    let (url, service) = (config.get("url"), config.get("service"));
    match (url.is_set(), service.value()) {
        (true, None) => validate_webhook_url(url.str(), &url.path(), errors),
        (false, Some(reference)) => {
            validate_webhook_service(reference, &service.path(), errors);
        }
        _ => config.required(errors, "exactly one of url or service is required"),
    }
}

fn review_versions(versions: &Field<'_>, errors: &mut FieldErrors) {
    if versions.is_empty() {
        return versions.required(errors, "must specify one of v1, v1beta1");
    }
    let mut seen = BTreeSet::new();
    for version in versions.items() {
        if seen.insert(version.str().to_owned()) {
            version.rule(errors, is_dns1035_label);
        } else {
            version.invalid(errors, "duplicate version");
        }
    }
    if !seen.contains("v1") && !seen.contains("v1beta1") {
        errors.with_rule(WEBHOOK_REVIEW_VERSION_KNOWN, |errors| {
            versions.invalid(errors, "must include at least one of v1, v1beta1");
        });
    }
}
