//! Webhook configurations and admission policies.

mod expressions;

use std::collections::BTreeSet;

use cel::Type;
use meta::{
    FieldErrors, Value,
    field::RuleId,
    names::{
        is_dns1035_label, is_dns1123_subdomain, is_qualified_name, name_is_path_segment,
        validate_label_selector, validate_webhook_service, validate_webhook_url,
    },
};

use self::expressions::Scope;
use super::{conditions, cursor::Field, label_selector, ratcheting::ratchet};

/// A configuration of mutating or of validating webhooks.
pub(crate) fn webhooks(object: &Value, errors: &mut FieldErrors) {
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
    // What was let in stays in, whatever it is made of.
    let same_conditions = old.is_some_and(|old| conditions(old) == conditions(object));
    for hook in root.get("webhooks").items() {
        webhook(&hook, errors);
        if !same_conditions {
            let scope = Scope::new(false, false);
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

pub(crate) fn webhooks_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    webhooks_since(object, Some(old), errors);
    ratchet(old, webhooks, errors);
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

fn match_conditions(conditions: &Field<'_>, scope: &Scope, errors: &mut FieldErrors) {
    if conditions.len() > 64 {
        errors.too_many(conditions.path(), conditions.len(), 64);
    }
    let mut names = BTreeSet::new();
    for condition in conditions.items() {
        let (name, expression) = (condition.get("name"), condition.get("expression"));
        if expression.str().trim().is_empty() {
            expression.required(errors, "");
        } else {
            scope.match_condition(&expression, errors);
        }
        name.require_rule(errors, is_qualified_name);
        if !name.is_empty() && !names.insert(name.str().to_owned()) {
            name.duplicate(errors);
        }
    }
}

fn rule_with_operations(rule: &Field<'_>, errors: &mut FieldErrors) {
    let operations = rule.get("operations");
    operations.require(errors);
    alone(&operations, "operations", errors);
    for operation in operations.items() {
        operation.one_of(errors, &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]);
    }
    let (groups, versions) = (rule.get("apiGroups"), rule.get("apiVersions"));
    groups.require(errors);
    alone(&groups, "API groups", errors);
    versions.require(errors);
    alone(&versions, "API versions", errors);
    for version in versions.items() {
        version.require(errors);
    }
    resources(&rule.get("resources"), errors);
    rule.get("scope").one_of(errors, &["*", "Cluster", "Namespaced"]);
}

/// Where there is a `*`, there is nothing else.
fn alone(list: &Field<'_>, what: &str, errors: &mut FieldErrors) {
    if list.len() > 1 && list.items().any(|item| item.is("*")) {
        list.invalid(errors, &format!("if '*' is present, must not specify other {what}"));
    }
}

fn resources(list: &Field<'_>, errors: &mut FieldErrors) {
    list.require(errors);
    let (mut whole_resources, mut whole_subresources) = (BTreeSet::new(), BTreeSet::new());
    let (mut every, mut any, mut plain) = (false, false, false);
    for item in list.items() {
        let text = item.str();
        if text.is_empty() {
            item.required(errors, "");
            continue;
        }
        every |= text == "*/*";
        any |= text == "*";
        let Some((resource, subresource)) = text.split_once('/') else {
            plain = text != "*";
            continue;
        };
        if whole_resources.contains(resource) {
            let why = format!("if '{resource}/*' is present, must not specify {text}");
            item.invalid(errors, &why);
        }
        if whole_subresources.contains(subresource) {
            let why = format!("if '*/{subresource}' is present, must not specify {text}");
            item.invalid(errors, &why);
        }
        if subresource == "*" {
            whole_resources.insert(resource.to_owned());
        }
        if resource == "*" {
            whole_subresources.insert(subresource.to_owned());
        }
    }
    if list.len() > 1 && every {
        list.invalid(errors, "if '*/*' is present, must not specify other resources");
    }
    if any && plain {
        let why = "if '*' is present, must not specify other resources without subresources";
        list.invalid(errors, why);
    }
}

/// A validating admission policy; `old` is there for an update.
pub(crate) fn validating_policy(object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    policy_match(&spec, old, errors);
    let list = spec.get("variables");
    let mut scope = Scope::new(spec.get("paramKind").is_set(), !list.is_empty());
    variables(&list, &mut scope, errors);
    let (validations, annotations) = (spec.get("validations"), spec.get("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        let why = "validations or auditAnnotations must contain at least one item";
        validations.required(errors, why);
        annotations.required(errors, why);
    }
    for validation in validations.items() {
        validation_rule(&validation, &scope, errors);
    }
    audit_annotations(&annotations, root.str_at(&["metadata", "name"]), &scope, errors);
}

fn validation_rule(validation: &Field<'_>, scope: &Scope, errors: &mut FieldErrors) {
    let [expression, message_expression, message] =
        ["expression", "messageExpression", "message"].map(|name| validation.get(name));
    let is_blank = |text: &Field<'_>| !text.is_empty() && text.str().trim().is_empty();
    if expression.str().trim().is_empty() {
        expression.required(errors, "expression is not specified");
    } else {
        scope.condition(&expression, errors);
    }
    if is_blank(&message_expression) {
        message_expression.invalid(errors, "must be non-empty if specified");
    } else if !message_expression.is_empty() {
        scope.message(&message_expression, errors);
    }
    if is_blank(&message) {
        message.invalid(errors, "must be non-empty if specified");
    } else if message.str().trim().contains(['\n', '\r']) {
        message.invalid(errors, "must not contain line breaks");
    }
    let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
    validation.get("reason").one_of(errors, &reasons);
}

fn audit_annotations(
    annotations: &Field<'_>,
    policy: &str,
    scope: &Scope,
    errors: &mut FieldErrors,
) {
    const MAX: usize = 20;
    const EXPRESSION_BYTES_MAX: usize = 5 * 1024;
    if annotations.len() > MAX {
        annotations.invalid(errors, &format!("must not have more than {MAX} auditAnnotations"));
    }
    let mut keys = BTreeSet::new();
    for annotation in annotations.items() {
        let (key, expression) = (annotation.get("key"), annotation.get("valueExpression"));
        if policy.is_empty() {
            key.invalid_value(errors, key.str(), "requires metadata.name be non-empty");
        } else {
            let whole = format!("{policy}/{}", key.str());
            for why in is_qualified_name(&whole) {
                key.invalid_value(errors, whole.as_str(), &why);
            }
        }
        match expression.str().trim().len() {
            0 => expression.required(errors, "valueExpression is not specified"),
            bytes if bytes > EXPRESSION_BYTES_MAX => {
                let why = format!("must not exceed {EXPRESSION_BYTES_MAX} bytes in length");
                expression.required(errors, &why);
            }
            _ => scope.annotation(&expression, errors),
        }
        if !keys.insert(key.str().to_owned()) {
            errors.duplicate(key.path(), key.str());
        }
    }
}

pub(crate) fn validating_policy_status(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let status = root.get("status");
    let checking = status.get("typeChecking");
    for warning in checking.get("expressionWarnings").items() {
        warning.get("warning").require(errors);
        let place = warning.get("fieldRef");
        if place.str().trim().is_empty() {
            place.required(errors, "");
        }
    }
    conditions(&status.get("conditions"), errors);
}

fn policy_match(spec: &Field<'_>, old: Option<&Value>, errors: &mut FieldErrors) {
    spec.get("failurePolicy").one_of(errors, &["Fail", "Ignore"]);
    let kind = spec.get("paramKind");
    if kind.is_set() {
        param_kind(&kind, errors);
    }
    let constraints = spec.get("matchConstraints");
    if constraints.is_set() {
        match_resources(&constraints, errors);
        constraints.get("resourceRules").require(errors);
    } else {
        constraints.required(errors, "");
    }
    let is_same = |name: &str, old: &Value| old.at(&["spec", name]) == spec.value_at(&[name]);
    let same = |old| ["paramKind", "matchConditions"].iter().all(|name| is_same(name, old));
    if !old.is_some_and(same) {
        let scope = Scope::new(kind.is_set(), false);
        match_conditions(&spec.get("matchConditions"), &scope, errors);
    }
}

fn param_kind(kind: &Field<'_>, errors: &mut FieldErrors) {
    let version = kind.get("apiVersion");
    if version.require(errors) {
        match *version.str().split('/').collect::<Vec<_>>() {
            [text] => param_version(&version, "", text, errors),
            [group, text] => param_version(&version, group, text, errors),
            _ => {
                let why = format!("unexpected GroupVersion string: {}", version.str());
                version.invalid(errors, &why);
            }
        }
    }
    let name = kind.get("kind");
    if name.require(errors) {
        let wrong = is_dns1035_label(&name.str().to_lowercase());
        if !wrong.is_empty() {
            let why =
                format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
            name.invalid(errors, &why);
        }
    }
}

fn param_version(field: &Field<'_>, group: &str, version: &str, errors: &mut FieldErrors) {
    let wrong = if group.is_empty() { Vec::new() } else { is_dns1123_subdomain(group) };
    if !wrong.is_empty() {
        field.invalid_value(errors, group, &wrong.join(","));
    }
    if version.is_empty() {
        return field.invalid(errors, "version must be specified");
    }
    let wrong = is_dns1035_label(version);
    if !wrong.is_empty() {
        field.invalid_value(errors, version, &wrong.join(","));
    }
}

fn match_resources(resources: &Field<'_>, errors: &mut FieldErrors) {
    resources.get("matchPolicy").one_of(errors, &["Equivalent", "Exact"]);
    for name in ["namespaceSelector", "objectSelector"] {
        let selector = resources.get(name);
        validate_label_selector(selector.value(), &selector.path(), errors);
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in resources.get(list).items() {
            let mut names = BTreeSet::new();
            for name in rule.get("resourceNames").items() {
                name.rule(errors, |name| name_is_path_segment(name, false));
                if !names.insert(name.str().to_owned()) {
                    name.duplicate(errors);
                }
            }
            rule_with_operations(&rule, errors);
        }
    }
}

fn variables(variables: &Field<'_>, scope: &mut Scope, errors: &mut FieldErrors) {
    for variable in variables.items() {
        let (name, expression) = (variable.get("name"), variable.get("expression"));
        if name.str().trim().is_empty() {
            name.required(errors, "name is not specified");
        } else if !is_cel_identifier(name.str()) {
            name.invalid(errors, "must be a valid CEL identifier");
        }
        if expression.str().trim().is_empty() {
            expression.required(errors, "expression is not specified");
        } else {
            scope.declare(&variable, errors);
        }
    }
}

fn is_cel_identifier(name: &str) -> bool {
    const RESERVED: &[&str] = &[
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    meta::names::is_c_identifier(name).is_empty() && !RESERVED.contains(&name)
}

/// The binding of a validating or mutating policy.
pub(crate) fn policy_binding(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    spec.get("policyName").require_rule(errors, is_dns1123_subdomain);
    let param = spec.get("paramRef");
    if param.is_set() {
        param_ref(&param, errors);
    }
    let resources = spec.get("matchResources");
    if resources.is_set() {
        match_resources(&resources, errors);
        if root.str_at(&["kind"]) == "MutatingAdmissionPolicyBinding" {
            mutable_operations(&resources, errors);
        }
    }
    if root.str_at(&["kind"]) == "ValidatingAdmissionPolicyBinding" {
        validation_actions(&spec.get("validationActions"), errors);
    }
}

fn param_ref(param: &Field<'_>, errors: &mut FieldErrors) {
    let (name, selector) = (param.get("name"), param.get("selector"));
    let why = "name and selector are mutually exclusive";
    name.rule_if_filled(errors, |name| name_is_path_segment(name, false));
    if !name.is_empty() && selector.is_set() {
        name.forbidden(errors, why);
    }
    validate_label_selector(selector.value(), &selector.path(), errors);
    if !name.is_empty() && selector.is_set() {
        selector.forbidden(errors, why);
    }
    if name.is_empty() && !selector.is_set() {
        param.required(errors, "one of name or selector must be specified");
    }
    let action = param.get("parameterNotFoundAction");
    if action.require(errors) {
        action.one_of(errors, &["Deny", "Allow"]);
    }
}

fn validation_actions(actions: &Field<'_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for action in actions.items() {
        action.one_of(errors, &["Audit", "Deny", "Warn"]);
        if !seen.insert(action.str().to_owned()) {
            action.duplicate(errors);
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure \
                   information in the API response and headers serves no purpose)";
        actions.invalid(errors, why);
    }
    if seen.is_empty() {
        actions.required(errors, "at least one validation action is required");
    }
}

/// A mutating admission policy; `old` is there for an update.
pub(crate) fn mutating_policy(object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    policy_match(&spec, old, errors);
    mutable_operations(&spec.get("matchConstraints"), errors);
    let mut scope = Scope::new(spec.get("paramKind").is_set(), true);
    variables(&spec.get("variables"), &mut scope, errors);
    let mutations = spec.get("mutations");
    if mutations.is_empty() {
        mutations.required(errors, "mutations must contain at least one item");
    }
    for own in mutations.items() {
        mutation(&own, &scope, errors);
    }
    let policy = spec.get("reinvocationPolicy");
    if policy.require(errors) {
        policy.one_of(errors, &["IfNeeded", "Never"]);
    }
}

fn mutable_operations(resources: &Field<'_>, errors: &mut FieldErrors) {
    for rule in resources.get("resourceRules").items() {
        for operation in rule.get("operations").items() {
            if !MUTABLE.contains(&operation.str()) {
                // Compat: upstream doesn't say which of the rules it is about.
                let place = resources.path().child("resourceRules").child("operations");
                errors.not_supported(place, operation.str(), &MUTABLE);
            }
        }
    }
}

/// What has an object to change.
const MUTABLE: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];

fn mutation(mutation: &Field<'_>, scope: &Scope, errors: &mut FieldErrors) {
    let kind = mutation.get("patchType");
    let (wanted, other, output) = match kind.str() {
        "" => return kind.required(errors, ""),
        "JSONPatch" => ("jsonPatch", "applyConfiguration", Type::json_patch()),
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", Type::patched_object()),
        _ => return kind.not_supported(errors, &["ApplyConfiguration", "JSONPatch"]),
    };
    let patch = mutation.get(wanted);
    if patch.is_set() {
        let expression = patch.get("expression");
        if expression.str().trim().is_empty() {
            expression.required(errors, "");
        } else {
            scope.mutation(&expression, output, errors);
        }
    } else {
        patch.required(errors, &format!("must be specified when patchType is {}", kind.str()));
    }
    if mutation.get(other).is_set() {
        let why = format!("must not be specified when patchType is {}", kind.str());
        mutation.get(other).invalid_value(errors, format!("{{{other}}}"), &why);
    }
}
