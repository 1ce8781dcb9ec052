//! The plugin ValidatingAdmissionPolicy.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    time::{Duration, Instant},
};

use cel::{Bound, PER_OBJECT_BUDGET, Type, Val};
use meta::{ApiError, Cause, Str, Value};

use super::{
    PolicyCommon, binding_matches, find_namespace_object, forbidden,
    metrics::error_type,
    namespace_object,
    params::{self, ParamsError},
    plain,
    set::{Binding, Compiled, Policy, PolicySet},
};
use crate::{
    Attributes, BoxFuture, Cluster, DynamicChange, Operation, Phases, Plugin,
    expressions::{AuthorizerValues, Composition, Expression, Inputs, OutOfBudget, request_value},
    matching::{MatchContext, MatchedResource, Visibility},
    ordered_json,
    versioned::VersionedObjects,
};

pub struct ValidatingAdmissionPolicy;

/// The validating policies of the cluster, kept current.
#[derive(Default)]
pub struct ValidatingPolicies(PolicySet<ValidatingPolicy>);

impl ValidatingPolicies {
    pub(crate) fn apply_policies(&self, changes: Vec<DynamicChange>) {
        self.0.apply_policies(changes);
    }

    pub(crate) fn apply_bindings(&self, changes: Vec<DynamicChange>) {
        self.0.apply_bindings(changes);
    }

    pub(crate) fn replace_from_files(&self, policies: &[(Str, Value)], bindings: &[(Str, Value)]) {
        self.0.replace_from_files(policies, bindings);
    }
}

struct ValidatingPolicy {
    common: PolicyCommon,
    validations: Vec<Validation>,
    annotations: Vec<(Str, Expression)>,
    uses_authorizer: bool,
    uses_namespace: bool,
}

struct Validation {
    expression: Expression,
    message_expression: Option<Expression>,
    message: String,
    reason: Str,
}

impl Policy for ValidatingPolicy {
    fn read(name: &Str, policy: &Value) -> Self {
        let common = PolicyCommon::read(name, policy);
        let (env, message_env) = (common.scope(true).env(), common.scope(false).env());
        let validations = policy.items_at(&["spec", "validations"]).iter().map(|validation| {
            let message_expression = validation.str_at(&["messageExpression"]);
            Validation {
                expression: Expression::compile(
                    &env,
                    validation.str_at(&["expression"]),
                    &[Type::Bool],
                ),
                message_expression: (!message_expression.is_empty()).then(|| {
                    Expression::compile(&message_env, message_expression, &[Type::String])
                }),
                message: validation.str_at(&["message"]).trim().to_owned(),
                reason: Str::new(match validation.str_at(&["reason"]) {
                    "" => "Invalid",
                    reason => reason,
                }),
            }
        });
        let validations: Vec<Validation> = validations.collect();
        let annotations = policy.items_at(&["spec", "auditAnnotations"]).iter().map(|annotation| {
            let text = annotation.str_at(&["valueExpression"]).trim();
            let expression = Expression::compile(&env, text, &[Type::String, Type::Null]);
            (Str::new(annotation.str_at(&["key"])), expression)
        });
        let annotations: Vec<(Str, Expression)> = annotations.collect();
        let uses_authorizer = common.uses_authorizer()
            || validations.iter().any(|own| own.expression.uses_authorizer());
        let messages = validations.iter().filter_map(|own| own.message_expression.as_ref());
        let uses_namespace = common.uses_namespace()
            || (validations.iter().map(|own| &own.expression))
                .chain(messages)
                .chain(annotations.iter().map(|(_, expression)| expression))
                .any(|expression| expression.uses("namespaceObject"));
        Self { common, validations, annotations, uses_authorizer, uses_namespace }
    }

    fn common(&self) -> &PolicyCommon {
        &self.common
    }
}

impl Plugin for ValidatingAdmissionPolicy {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionPolicy"
    }

    fn handles(&self, _operation: Operation) -> bool {
        true
    }

    fn phases(&self) -> Phases {
        Phases::Validating
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let dynamic = &cluster.dynamic_admission;
        let policies = &dynamic.validating_policies.0;
        let resource = &attributes.gvr.resource;
        let visibility = Visibility::to_policies(attributes.gvr);
        let is_complete = visibility != Visibility::All || dynamic.are_synced();
        if is_complete && policies.are_idle(resource, visibility) {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(async move {
            if !is_complete {
                dynamic.wait_until_synced(attributes).await?;
            }
            dispatch(&policies.current(), visibility, attributes, object, cluster).await
        })
    }
}

/// A decision that refuses the request.
struct Denial {
    policy: Str,
    binding: Option<Str>,
    message: String,
    /// "": `Invalid`.
    reason: Str,
}

async fn dispatch(
    policies: &Compiled<ValidatingPolicy>,
    visibility: Visibility,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
    cluster: &Cluster,
) -> Result<(), ApiError> {
    let mut cx = MatchContext::new(attributes, cluster);
    let mut versions: HashMap<MatchedResource, (VersionedObjects, Value)> = HashMap::new();
    let mut denials: Vec<Denial> = Vec::new();
    for place in policies.candidates(&attributes.gvr.resource, visibility) {
        let bound = policies.at(*place);
        let policy = &*bound.policy;
        let common = &policy.common;
        // What keeps a policy from being evaluated refuses the request, unless it fails open.
        let misconfigured = |why: String, binding: Option<&Binding>| {
            let what = if binding.is_some() { "binding" } else { "policy" };
            (!common.fails_open).then(|| Denial {
                policy: common.name.clone(),
                binding: binding.map(|binding| binding.name.clone()),
                message: format!("failed to configure {what}: {why}"),
                reason: Str::default(),
            })
        };
        let Some(criteria) = &common.criteria else {
            let why = "policy contained no match constraints, a required field";
            denials.extend(misconfigured(why.to_owned(), None));
            continue;
        };
        let matched = match criteria.matches(&mut cx, object).await {
            Ok(None) => continue,
            Ok(Some(matched)) => matched,
            Err(error) => {
                denials.extend(misconfigured(plain(&error), None));
                continue;
            }
        };
        let mut annotations: BTreeMap<Str, Vec<String>> = BTreeMap::new();
        for binding in &bound.bindings {
            match binding_matches(binding, &mut cx, object).await {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    denials.extend(misconfigured(plain(&error), Some(binding)));
                    continue;
                }
            }
            let collected = params::collect(
                common.param_kind.as_ref(),
                binding.param_ref.as_ref(),
                attributes.namespace,
                cluster,
            );
            let params = match collected.await {
                Ok(params) => params,
                Err(ParamsError::Policy(why)) => {
                    denials.extend(misconfigured(why, None));
                    break;
                }
                Err(ParamsError::Binding(why)) => {
                    denials.extend(misconfigured(why, Some(binding)));
                    continue;
                }
            };
            if params.is_empty() {
                continue;
            }
            if let Entry::Vacant(vacant) = versions.entry(matched) {
                let (resource, kind) = cx.resource(matched);
                let request = request_value(attributes, resource, kind);
                let objects =
                    VersionedObjects::new(attributes, cluster, object, (resource, kind)).await;
                match objects {
                    Ok(objects) => {
                        vacant.insert((objects, request));
                    }
                    Err(error) => {
                        let why = format!("failed to convert object version: {}", plain(&error));
                        denials.extend(misconfigured(why, Some(binding)));
                        continue;
                    }
                }
            }
            find_namespace_object(&mut cx, policy.uses_namespace).await?;
            let (objects, request) = &versions[&matched];
            for params in &params {
                let inputs = Inputs {
                    attributes,
                    object: objects.object.as_ref().map(|object| &object.value),
                    old: objects.old.as_ref().map(|old| &old.value),
                    request,
                    namespace: namespace_object(&cx),
                    params: params.as_ref(),
                };
                let outcome = evaluate(policy, &cx, &inputs).await;
                enforce(policy, binding, outcome, &cx, &mut annotations, &mut denials);
            }
        }
        for (key, values) in annotations {
            attributes.annotate(format!("{}/{key}", common.name), values.join(", "));
        }
    }
    match denials.into_iter().next() {
        None => Ok(()),
        Some(denial) => Err(denied(attributes, denial)),
    }
}

fn denied(attributes: &Attributes<'_>, denial: Denial) -> ApiError {
    let Denial { policy, binding, message, reason } = denial;
    let with = binding.map(|binding| format!(" with binding '{binding}'")).unwrap_or_default();
    let message = format!("ValidatingAdmissionPolicy '{policy}'{with} denied request: {message}");
    let mut status = forbidden(attributes, &message);
    let reason = if reason.is_empty() { "Invalid" } else { reason.as_str() };
    status.code = match reason {
        "Forbidden" => 403,
        "Unauthorized" => 401,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    reason.clone_into(&mut status.reason);
    if let Some(details) = &mut status.details {
        details.causes.push(Cause { message, ..Cause::default() });
    }
    ApiError::Status(Box::new(status))
}

/// What one validation decided.
struct Decision {
    outcome: DecisionOutcome,
    elapsed: Duration,
}

enum DecisionOutcome {
    Admit,
    Deny {
        message: String,
        reason: Str,
    },
    /// It could not be evaluated.
    Error(String),
}

/// What a policy decided with one set of parameters.
#[derive(Default)]
struct Evaluation {
    decisions: Vec<Decision>,
    /// Ok(None): left out.
    annotations: Vec<(Str, Result<Option<String>, String>)>,
}

impl Evaluation {
    fn failed(why: String) -> Self {
        let outcome = DecisionOutcome::Error(why);
        Self { decisions: vec![Decision { outcome, elapsed: Duration::ZERO }], ..Self::default() }
    }
}

async fn evaluate(
    policy: &ValidatingPolicy,
    cx: &MatchContext<'_>,
    inputs: &Inputs<'_>,
) -> Evaluation {
    match policy.common.meets_conditions(cx, inputs).await {
        Ok(true) => {}
        Ok(false) => return Evaluation::default(),
        Err(why) => return Evaluation::failed(why),
    }
    inputs
        .evaluate(&cx.cluster.authorizer, policy.uses_authorizer, |authorizer| {
            evaluate_now(policy, inputs, authorizer)
                .unwrap_or_else(|OutOfBudget| Evaluation::failed(OutOfBudget::TEXT.to_owned()))
        })
        .await
}

fn evaluate_now(
    policy: &ValidatingPolicy,
    inputs: &Inputs<'_>,
    authorizer: Option<&AuthorizerValues>,
) -> Result<Evaluation, OutOfBudget> {
    let mut budget = PER_OBJECT_BUDGET;
    let mut evaluation = Evaluation::default();
    let composition = Composition::new(&policy.common.variables);
    let values = inputs.values(authorizer, Bound::Lazy(&composition));
    let bound = policy.common.scope(true).bind(&values);
    composition.bind(&bound);
    for validation in &policy.validations {
        let started = Instant::now();
        let result = validation.expression.evaluate(&bound, Some(&composition), &mut budget)?;
        let outcome = match result {
            Ok(Val::Bool(true)) => DecisionOutcome::Admit,
            Ok(_) => {
                DecisionOutcome::Deny { message: String::new(), reason: validation.reason.clone() }
            }
            Err(why) => DecisionOutcome::Error(why),
        };
        evaluation.decisions.push(Decision { outcome, elapsed: started.elapsed() });
    }
    explain(policy, inputs, &mut evaluation.decisions, budget);
    evaluation.annotations = annotate(policy, inputs)?;
    Ok(evaluation)
}

/// The messages of what was denied. Compat: they share what the validations have left of the budget,
/// and know no authorizer.
fn explain(
    policy: &ValidatingPolicy,
    inputs: &Inputs<'_>,
    decisions: &mut [Decision],
    mut budget: u64,
) {
    if !decisions.iter().any(|own| matches!(own.outcome, DecisionOutcome::Deny { .. })) {
        return;
    }
    let composition = Composition::new(&policy.common.variables);
    let values = inputs.values(None, Bound::Lazy(&composition));
    // Variables may name an authorizer, the messages themselves may not.
    let for_variables = policy.common.scope(true).bind(&values);
    let bound = policy.common.scope(false).bind(&values);
    composition.bind(&for_variables);
    let mut out_of_budget = false;
    for (validation, decision) in policy.validations.iter().zip(decisions) {
        let DecisionOutcome::Deny { message, .. } = &mut decision.outcome else { continue };
        if let Some(expression) = &validation.message_expression
            && !out_of_budget
        {
            match expression.evaluate(&bound, Some(&composition), &mut budget) {
                Ok(Ok(value)) => {
                    let text = value.as_str().unwrap_or_default().trim();
                    if text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n') {
                        text.clone_into(message);
                    }
                }
                // A message that cannot be made is no reason to let the request through.
                Ok(Err(why)) => tracing::debug!("error while evaluating messageExpression: {why}"),
                Err(OutOfBudget) => out_of_budget = true,
            }
        }
        if message.is_empty() {
            message.clone_from(&validation.message);
        }
        if message.is_empty() {
            *message = format!("failed expression: {}", validation.expression.text.trim());
        }
        if out_of_budget {
            let why = format!("failed messageExpression: {}", OutOfBudget::TEXT);
            decision.outcome = DecisionOutcome::Error(why);
        }
    }
}

/// A longer message is left out. As upstream.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

type Annotations = Vec<(Str, Result<Option<String>, String>)>;

fn annotate(policy: &ValidatingPolicy, inputs: &Inputs<'_>) -> Result<Annotations, OutOfBudget> {
    if policy.annotations.is_empty() {
        return Ok(Vec::new());
    }
    let mut budget = PER_OBJECT_BUDGET;
    let composition = Composition::new(&policy.common.variables);
    // Compat: audit annotations know no authorizer, although they compile with one.
    let values = inputs.values(None, Bound::Lazy(&composition));
    let bound = policy.common.scope(true).bind(&values);
    composition.bind(&bound);
    let mut annotations = Vec::with_capacity(policy.annotations.len());
    for (key, expression) in &policy.annotations {
        let value = expression.evaluate(&bound, Some(&composition), &mut budget)?;
        let value = value.and_then(|value| match &value {
            Val::Null => Ok(None),
            value => match value.as_str() {
                Some(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
                None => Err(format!(
                    "valueExpression '{}' resulted in unsupported return type. Return type must \
                     be either string or null.",
                    expression.text
                )),
            },
        });
        annotations.push((key.clone(), value));
    }
    Ok(annotations)
}

/// A longer value of an audit annotation is cut. As upstream.
const ANNOTATION_BYTES_MAX: usize = 10 * 1024;

/// Does what the binding says with what the policy decided.
fn enforce(
    policy: &ValidatingPolicy,
    binding: &Binding,
    evaluation: Evaluation,
    cx: &MatchContext<'_>,
    annotations: &mut BTreeMap<Str, Vec<String>>,
    denials: &mut Vec<Denial>,
) {
    let (name, attributes) = (&policy.common.name, cx.attributes);
    let metrics = &cx.cluster.dynamic_admission.policy_metrics;
    for (index, Decision { outcome, elapsed }) in evaluation.decisions.into_iter().enumerate() {
        let (message, reason) = match outcome {
            DecisionOutcome::Admit => continue,
            DecisionOutcome::Error(why) if policy.common.fails_open => {
                metrics.validated(name, &binding.name, error_type(&why), "allow", elapsed);
                continue;
            }
            DecisionOutcome::Error(why) => (why, Str::default()),
            DecisionOutcome::Deny { message, reason } => (message, reason),
        };
        for action in &binding.actions {
            let kind = match action.as_str() {
                "Deny" => {
                    denials.push(Denial {
                        policy: name.clone(),
                        binding: Some(binding.name.clone()),
                        message: message.clone(),
                        reason: reason.clone(),
                    });
                    "deny"
                }
                "Audit" => {
                    let told = failure_annotation(policy, binding, index, &message);
                    attributes.annotate(VALIDATION_FAILURE, told);
                    "audit"
                }
                "Warn" => {
                    attributes.warn(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{name}' with binding \
                         '{}': {message}",
                        binding.name
                    ));
                    "warn"
                }
                _ => continue,
            };
            metrics.validated(name, &binding.name, error_type(&message), kind, elapsed);
        }
    }
    for (key, value) in evaluation.annotations {
        match value {
            Ok(None) => {}
            Ok(Some(mut text)) => {
                text.truncate(text.floor_char_boundary(ANNOTATION_BYTES_MAX));
                let values = annotations.entry(key).or_default();
                if !values.contains(&text) {
                    values.push(text);
                }
            }
            Err(_) if policy.common.fails_open => {}
            Err(message) => denials.push(Denial {
                policy: name.clone(),
                binding: Some(binding.name.clone()),
                message,
                reason: Str::default(),
            }),
        }
    }
}

const VALIDATION_FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";

fn failure_annotation(
    policy: &ValidatingPolicy,
    binding: &Binding,
    index: usize,
    message: &str,
) -> String {
    let actions = binding.actions.iter().map(|action| Value::String(action.clone()));
    let told = ordered_json(&[
        ("message", message.into()),
        ("policy", policy.common.name.clone().into()),
        ("binding", binding.name.clone().into()),
        ("expressionIndex", (index as i64).into()),
        ("validationActions", Value::Array(actions.collect())),
    ]);
    format!("[{told}]")
}

#[cfg(test)]
mod tests;
