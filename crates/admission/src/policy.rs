//! Admission policies in CEL: the plugins ValidatingAdmissionPolicy and MutatingAdmissionPolicy.
//!
//! `set` keeps the policies and bindings of a kind compiled; `params` finds what a binding refers to.

mod metrics;
mod mutating;
mod params;
mod set;
mod type_checking;
mod validating;

pub use self::{
    metrics::PolicyMetrics,
    mutating::{MutatingAdmissionPolicy, MutatingPolicies},
    type_checking::{ExpressionWarning, KindTypes, check_types},
    validating::{ValidatingAdmissionPolicy, ValidatingPolicies},
};

use meta::{ApiError, Str, Value};

use self::{params::ParamKind, set::Binding};
use crate::{
    Attributes,
    expressions::{Expression, Inputs, MatchConditions},
    matching::{Criteria, MatchContext},
};
use cel::admission::{ComposedVariables, Variables};

/// What both kinds of policies have.
struct PolicyCommon {
    name: Str,
    /// None: the policy has no `matchConstraints`, which validation requires.
    criteria: Option<Criteria>,
    param_kind: Option<ParamKind>,
    conditions: MatchConditions,
    variables: Vec<(Str, Expression)>,
    composed: ComposedVariables,
    /// `failurePolicy: Ignore`.
    fails_open: bool,
}

impl PolicyCommon {
    fn read(name: &Str, policy: &Value) -> Self {
        let null = Value::Null;
        let spec = policy.get("spec").unwrap_or(&null);
        let param_kind = spec.get("paramKind").filter(|kind| !kind.is_null()).map(ParamKind::read);
        let fails_open = spec.str_at(&["failurePolicy"]) == "Ignore";
        let has_params = param_kind.is_some();
        let mut composed = ComposedVariables::default();
        let mut variables = Vec::new();
        for variable in spec.items_at(&["variables"]) {
            let env = Variables {
                params: has_params,
                authorizer: true,
                composed: Some(&composed),
                ..Variables::default()
            }
            .env();
            let expression = Expression::compile(&env, variable.str_at(&["expression"]), &[]);
            let name = variable.str_at(&["name"]);
            composed.declare(name, expression.output_type());
            variables.push((Str::new(name), expression));
        }
        let constraints = spec.get("matchConstraints").filter(|own| !own.is_null());
        Self {
            name: name.clone(),
            criteria: constraints.map(Criteria::of_policy),
            conditions: MatchConditions::read(
                spec.items_at(&["matchConditions"]),
                has_params,
                fails_open,
            ),
            param_kind,
            variables,
            composed,
            fails_open,
        }
    }

    /// What an expression of this policy can refer to.
    fn scope(&self, authorizer: bool) -> Variables<'_> {
        Variables {
            params: self.param_kind.is_some(),
            authorizer,
            composed: Some(&self.composed),
            ..Variables::default()
        }
    }

    fn uses_authorizer(&self) -> bool {
        self.variables.iter().any(|(_, expression)| expression.uses_authorizer())
    }

    fn uses_namespace(&self) -> bool {
        self.variables.iter().any(|(_, expression)| expression.uses("namespaceObject"))
    }

    /// Whether the match conditions let a request through to the policy. Err: why that is unknown.
    async fn meets_conditions(
        &self,
        cx: &MatchContext<'_>,
        inputs: &Inputs<'_>,
    ) -> Result<bool, String> {
        if self.conditions.is_empty() {
            return Ok(true);
        }
        // Compat: match conditions do not see the namespace.
        let inputs = Inputs { namespace: None, ..*inputs };
        let started = std::time::Instant::now();
        let outcome = self.conditions.evaluate(&inputs, &cx.cluster.authorizer).await;
        let metrics = &cx.cluster.dynamic_admission.metrics;
        let operation = cx.attributes.operation.as_str();
        let labels = [self.name.as_str(), "policy", "validate", operation];
        metrics.conditions_evaluated(&labels, &outcome, started.elapsed());
        outcome.matches
    }
}

/// Whether a binding is for a request.
async fn binding_matches(
    binding: &Binding,
    cx: &mut MatchContext<'_>,
    object: Option<&Value>,
) -> Result<bool, ApiError> {
    match &binding.criteria {
        None => Ok(true),
        Some(criteria) => Ok(criteria.matches(cx, object).await?.is_some()),
    }
}

/// Looks up `namespaceObject`, which [`namespace_object`] then returns. An expression that does not use it
/// still needs the namespace to be there.
async fn find_namespace_object(cx: &mut MatchContext<'_>, is_used: bool) -> Result<(), ApiError> {
    if !has_namespace_object(cx.attributes) {
        return Ok(());
    }
    if is_used { cx.namespace().await.map(drop) } else { cx.namespace_labels().await.map(drop) }
}

/// `namespaceObject`: None for cluster-scoped resources and for namespaces themselves.
fn namespace_object<'c>(cx: &'c MatchContext<'_>) -> Option<&'c Value> {
    if has_namespace_object(cx.attributes) { cx.known_namespace() } else { None }
}

fn has_namespace_object(attributes: &Attributes<'_>) -> bool {
    let is_namespace = attributes.gvk.group.is_empty()
        && attributes.gvk.version == "v1"
        && attributes.gvk.kind == "Namespace";
    !is_namespace && !attributes.namespace.is_empty()
}

/// The text of an error without kube-apiserver's prefix for internal ones.
fn plain(error: &ApiError) -> String {
    error.to_string()
}

fn forbidden(attributes: &Attributes<'_>, why: &str) -> meta::Status {
    ApiError::Forbidden {
        resource: attributes.gvr.group_resource(),
        name: attributes.name.to_owned(),
        why: why.to_owned(),
        causes: Vec::new(),
    }
    .status()
}
