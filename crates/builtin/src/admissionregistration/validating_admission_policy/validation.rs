//! Validation of validating admission policies.

use std::collections::BTreeSet;

use meta::{FieldErrors, Value, jsonpath::JsonPath, names::is_qualified_name};

use crate::validation::{
    admission::{expressions::ExpressionScope, policy_match, variables},
    conditions,
    cursor::Field,
};

/// A validating admission policy; `old` is there for an update.
pub(crate) fn validate(object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    policy_match(&spec, old, errors);
    let list = spec.get("variables");
    let mut scope = ExpressionScope::new(spec.get("paramKind").is_set(), !list.is_empty());
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

fn validation_rule(validation: &Field<'_>, scope: &ExpressionScope, errors: &mut FieldErrors) {
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
    scope: &ExpressionScope,
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

pub(crate) fn validate_status(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let status = root.get("status");
    let checking = status.get("typeChecking");
    for warning in checking.get("expressionWarnings").items() {
        warning.get("warning").require(errors);
        let place = warning.get("fieldRef");
        match place.str().trim() {
            "" => place.required(errors, ""),
            text => {
                if let Err(why) = JsonPath::parse(text) {
                    place.invalid_value(errors, text, &format!("invalid JSONPath: {why}"));
                }
            }
        }
    }
    conditions(&status.get("conditions"), errors);
}
