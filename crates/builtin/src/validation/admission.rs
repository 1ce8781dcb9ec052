//! Webhook configurations and admission policies.

pub(crate) mod expressions;

use std::collections::BTreeSet;

use meta::{
    FieldErrors, Value,
    names::{
        is_dns1035_label, is_dns1123_subdomain, is_qualified_name, name_is_path_segment,
        validate_label_selector,
    },
};

use crate::validation::{admission::expressions::ExpressionScope, cursor::Field};

pub(crate) fn match_conditions(
    conditions: &Field<'_>,
    scope: &ExpressionScope,
    errors: &mut FieldErrors,
) {
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

pub(crate) fn rule_with_operations(rule: &Field<'_>, errors: &mut FieldErrors) {
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
pub(crate) fn alone(list: &Field<'_>, what: &str, errors: &mut FieldErrors) {
    if list.len() > 1 && list.items().any(|item| item.is("*")) {
        list.invalid(errors, &format!("if '*' is present, must not specify other {what}"));
    }
}

pub(crate) fn resources(list: &Field<'_>, errors: &mut FieldErrors) {
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

pub(crate) fn policy_match(spec: &Field<'_>, old: Option<&Value>, errors: &mut FieldErrors) {
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
        let scope = ExpressionScope::new(kind.is_set(), false);
        match_conditions(&spec.get("matchConditions"), &scope, errors);
    }
}

pub(crate) fn param_kind(kind: &Field<'_>, errors: &mut FieldErrors) {
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

pub(crate) fn param_version(
    field: &Field<'_>,
    group: &str,
    version: &str,
    errors: &mut FieldErrors,
) {
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

pub(crate) fn match_resources(resources: &Field<'_>, errors: &mut FieldErrors) {
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

/// Each variable is compiled with the declarations of all before it, so that their number counts squared.
const VARIABLES_MAX: usize = 1000;

pub(crate) fn variables(
    variables: &Field<'_>,
    scope: &mut ExpressionScope,
    errors: &mut FieldErrors,
) {
    if variables.len() > VARIABLES_MAX {
        return errors.too_many(variables.path(), variables.len(), VARIABLES_MAX);
    }
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

pub(crate) fn is_cel_identifier(name: &str) -> bool {
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

pub(crate) fn mutable_operations(resources: &Field<'_>, errors: &mut FieldErrors) {
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
pub(crate) const MUTABLE: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn the_number_of_variables_is_bounded() {
        let said = |count: usize| {
            let variable = |n: usize| {
                let name = format!("v{n}");
                value!({"name": (name), "expression": "1"})
            };
            let list = Value::Array((0..count).map(variable).collect());
            let spec = value!({"variables": (list)});
            let mut errors = FieldErrors::default();
            let spec = Field::root(&spec);
            variables(&spec.get("variables"), &mut ExpressionScope::new(false, true), &mut errors);
            errors.to_string()
        };
        assert_eq!(said(VARIABLES_MAX), "[]");
        assert_eq!(said(1001), "variables: Too many: 1001: must have at most 1000 items");
    }
}
