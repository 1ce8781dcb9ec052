//! Type checking of validating policies: their expressions are compiled with what is known of the
//! kinds that they match. What is wrong is a warning in the status of the policy, no error: a policy
//! may be for kinds that differ.

use std::sync::Arc;

use cel::{
    CompileError, Decl, Env, Type,
    admission::{ComposedVariables, Variables},
};
use meta::{GroupVersion, GroupVersionKind, GroupVersionResource, Str, Value};

use crate::matching::texts;

/// The kinds that are served, and their types.
pub trait KindTypes: Send + Sync {
    /// The kind of a resource; None: it is not served.
    fn kind_of(&self, resource: &GroupVersionResource) -> Option<GroupVersionKind>;

    /// What is known of objects of a kind; None: nothing.
    fn decl_of(&self, kind: &GroupVersionKind) -> Option<Arc<Decl>>;
}

fn type_of(types: &dyn KindTypes, kind: &GroupVersionKind) -> Option<Type> {
    Some(Type::of(&types.decl_of(kind)?, &kind.kind))
}

/// One `expressionWarnings` entry of a policy's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionWarning {
    pub field_ref: String,
    pub warning: String,
}

/// No more kinds are checked, as upstream.
const KINDS_MAX: usize = 10;

pub fn check_types(policy: &Value, types: &dyn KindTypes) -> Vec<ExpressionWarning> {
    let null = Value::Null;
    let spec = policy.get("spec").unwrap_or(&null);
    let params = spec.get("paramKind").filter(|kind| !kind.is_null()).map(|kind| {
        let version = GroupVersion::parse(kind.str_at(&["apiVersion"]));
        version.and_then(|version| type_of(types, &version.with_kind(kind.str_at(&["kind"]))))
    });
    let kinds = kinds_to_check(spec, types).into_iter();
    let kinds: Vec<(GroupVersionKind, Type)> =
        kinds.filter_map(|kind| type_of(types, &kind).map(|ty| (kind, ty))).collect();
    let envs: Vec<(GroupVersionKind, Env)> =
        kinds.into_iter().map(|(kind, ty)| (kind, env(spec, &ty, params.as_ref()))).collect();
    let mut warnings = Vec::new();
    for (at, validation) in spec.items_at(&["validations"]).iter().enumerate() {
        for field in ["expression", "messageExpression"] {
            let text = validation.str_at(&[field]);
            if text.is_empty() {
                continue;
            }
            let wrong: Vec<String> = envs
                .iter()
                .filter_map(|(kind, env)| Some((kind, check(env, text)?)))
                .map(|(kind, why)| format!("{}, Kind={}: {why}\n", kind.group_version(), kind.kind))
                .collect();
            if !wrong.is_empty() {
                let field_ref = format!("spec.validations[{at}].{field}");
                warnings.push(ExpressionWarning { field_ref, warning: wrong.join("\n") });
            }
        }
    }
    warnings
}

fn check(env: &Env, text: &str) -> Option<String> {
    match env.compile(text) {
        Err(CompileError::Invalid(issues)) => Some(issues.to_string()),
        // Types are all that is checked here.
        Ok(_) | Err(CompileError::Unusable { .. }) => None,
    }
}

fn env(spec: &Value, object: &Type, params: Option<&Option<Type>>) -> Env {
    let mut composed = ComposedVariables::default();
    let scope = |composed: &ComposedVariables| {
        Variables {
            object: Some(object),
            params: params.is_some(),
            params_type: params.and_then(Option::as_ref),
            authorizer: true,
            composed: Some(composed),
        }
        .env()
    };
    for variable in spec.items_at(&["variables"]) {
        let compiled = scope(&composed).compile(variable.str_at(&["expression"])).ok();
        let ty = compiled.as_ref().map(cel::Program::output_type);
        composed.declare(variable.str_at(&["name"]), ty);
    }
    scope(&composed)
}

/// The kinds that the rules name. Rules with wildcards name none.
fn kinds_to_check(spec: &Value, types: &dyn KindTypes) -> Vec<GroupVersionKind> {
    let mut kinds: Vec<GroupVersionKind> = Vec::new();
    'rules: for rule in spec.items_at(&["matchConstraints", "resourceRules"]) {
        let sorted = |field: &str| {
            let mut names = texts(rule, field);
            names.sort();
            names
        };
        let [groups, versions] = ["apiGroups", "apiVersions"].map(sorted);
        let has_wildcard = |names: &[Str]| names.iter().any(|name| name.contains('*'));
        if has_wildcard(&groups) || has_wildcard(&versions) {
            continue;
        }
        let resources = sorted("resources").into_iter();
        let resources: Vec<Str> = resources.filter(|name| !name.contains(['*', '/'])).collect();
        for group in &groups {
            for version in &versions {
                for resource in &resources {
                    let resource = GroupVersionResource {
                        group: group.clone(),
                        version: version.clone(),
                        resource: resource.clone(),
                    };
                    let Some(kind) = types.kind_of(&resource) else { continue };
                    if !kinds.contains(&kind) {
                        kinds.push(kind);
                    }
                    if kinds.len() == KINDS_MAX {
                        break 'rules;
                    }
                }
            }
        }
    }
    kinds.sort_by(|a, b| (&a.group, &a.version, &a.kind).cmp(&(&b.group, &b.version, &b.kind)));
    kinds
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    struct Widgets;

    impl KindTypes for Widgets {
        fn kind_of(&self, resource: &GroupVersionResource) -> Option<GroupVersionKind> {
            (resource.resource == "widgets")
                .then(|| GroupVersionKind::new(&resource.group, &resource.version, "Widget"))
        }

        fn decl_of(&self, kind: &GroupVersionKind) -> Option<Arc<Decl>> {
            let size = Arc::new(Decl::int());
            let decl = Arc::new(Decl::object([("size", size, false)]));
            (kind.kind == "Widget").then_some(decl)
        }
    }

    #[test]
    fn expressions_that_do_not_fit_a_kind_are_warned_about() {
        let rule = |group: &str| {
            value!({
                "apiGroups": [(group)], "apiVersions": ["v1"], "operations": ["*"],
                "resources": ["widgets", "widgets/status", "unknown"],
            })
        };
        let cases = [
            ("a.b", "object.size < 3", ""),
            ("*", "object.weight < 3", ""),
            ("a.b", "variables.size < 3", ""),
            (
                "a.b",
                "object.weight < 3",
                "a.b/v1, Kind=Widget: ERROR: <input>:1:7: undefined field 'weight'",
            ),
            ("a.b", "variables.size == 'x'", "found no matching overload for '_==_'"),
            ("a.b", "params.size == 'x'", "found no matching overload for '_==_'"),
        ];
        for (group, expression, expected) in cases {
            let policy = value!({"spec": {
                "paramKind": {"apiVersion": "a.b/v1", "kind": "Widget"},
                "matchConstraints": {"resourceRules": [(rule(group))]},
                "variables": [{"name": "size", "expression": "object.size"}],
                "validations": [
                    {"expression": "true"},
                    {"expression": "true", "messageExpression": (expression)},
                ],
            }});
            let warnings = check_types(&policy, &Widgets);
            if expected.is_empty() {
                assert_eq!(warnings, [], "{expression}");
                continue;
            }
            let [warning] = &warnings[..] else { panic!("{expression}: {warnings:?}") };
            assert_eq!(warning.field_ref, "spec.validations[1].messageExpression");
            assert!(warning.warning.contains(expected), "{}", warning.warning);
        }
    }
}
