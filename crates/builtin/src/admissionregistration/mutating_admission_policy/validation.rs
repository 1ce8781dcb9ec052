//! Validation of mutating admission policies.

use cel::Type;
use meta::{FieldErrors, Value};

use crate::validation::{
    admission::{expressions::ExpressionScope, mutable_operations, policy_match, variables},
    cursor::Field,
};

/// A mutating admission policy; `old` is there for an update.
pub(crate) fn validate(object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    policy_match(&spec, old, errors);
    mutable_operations(&spec.get("matchConstraints"), errors);
    let mut scope = ExpressionScope::new(spec.get("paramKind").is_set(), true);
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

fn mutation(mutation: &Field<'_>, scope: &ExpressionScope, errors: &mut FieldErrors) {
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
