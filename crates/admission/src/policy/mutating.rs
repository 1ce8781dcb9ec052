//! The plugin MutatingAdmissionPolicy: policies that change objects by apply configurations and JSON
//! patches.

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use cel::{Bound, PER_OBJECT_BUDGET, Type, Val};
use meta::{ApiError, Cause, Str, Value};
use patch::{PatchError, json_patch::JsonPatch};

use super::{
    PolicyCommon, binding_matches, find_namespace_object, forbidden,
    metrics::error_type,
    namespace_object,
    params::{self, ParamsError},
    plain,
    set::{Binding, BoundPolicy, Compiled, Policy, PolicySet},
};
use crate::{
    Attributes, BoxFuture, Cluster, DynamicChange, Operation, Phases, Plugin,
    changed_object::ChangedObject,
    expressions::{AuthorizerValues, Composition, Expression, Inputs, OutOfBudget, request_value},
    matching::{MatchContext, MatchedResource, Visibility},
    patched_object::{self, Patched, Unusable},
    versioned::VersionedObject,
};

pub struct MutatingAdmissionPolicy;

const NAME: &str = "MutatingAdmissionPolicy";

/// The mutating policies of the cluster, kept current.
#[derive(Default)]
pub struct MutatingPolicies(PolicySet<MutatingPolicy>);

impl MutatingPolicies {
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

struct MutatingPolicy {
    common: PolicyCommon,
    mutations: Vec<Mutation>,
    /// `reinvocationPolicy: IfNeeded`.
    reinvoked_if_needed: bool,
    uses_authorizer: bool,
    uses_namespace: bool,
}

struct Mutation {
    patch_type: PatchType,
    expression: Expression,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatchType {
    ApplyConfiguration,
    JsonPatch,
}

impl Policy for MutatingPolicy {
    fn read(name: &Str, policy: &Value) -> Self {
        let common = PolicyCommon::read(name, policy);
        let env = common.scope(true).env().for_mutations();
        let mutations = policy.items_at(&["spec", "mutations"]).iter().map(|mutation| {
            let (patch_type, field, ty) = match mutation.str_at(&["patchType"]) {
                "JSONPatch" => (PatchType::JsonPatch, "jsonPatch", Type::json_patch()),
                _ => (PatchType::ApplyConfiguration, "applyConfiguration", Type::patched_object()),
            };
            let text = mutation.str_at(&[field, "expression"]).trim();
            Mutation { patch_type, expression: Expression::compile(&env, text, &[ty]) }
        });
        let mutations: Vec<Mutation> = mutations.collect();
        let uses_authorizer = common.uses_authorizer()
            || mutations.iter().any(|own| own.expression.uses_authorizer());
        let reinvoked_if_needed = policy.str_at(&["spec", "reinvocationPolicy"]) == "IfNeeded";
        let uses_namespace = common.uses_namespace()
            || mutations.iter().any(|own| own.expression.uses("namespaceObject"));
        Self { common, mutations, reinvoked_if_needed, uses_authorizer, uses_namespace }
    }

    fn common(&self) -> &PolicyCommon {
        &self.common
    }
}

impl Plugin for MutatingAdmissionPolicy {
    fn name(&self) -> &'static str {
        NAME
    }

    fn handles(&self, _operation: Operation) -> bool {
        true
    }

    fn phases(&self) -> Phases {
        Phases::Mutating
    }

    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let dynamic = &cluster.dynamic_admission;
        let policies = &dynamic.mutating_policies.0;
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

/// What is remembered between the two runs.
#[derive(Default)]
struct ReinvocationState {
    last_output: Option<Value>,
    invoked: BTreeSet<InvocationKey>,
    reinvoked: BTreeSet<InvocationKey>,
}

/// Policy, binding, and namespace and name of the parameter.
type InvocationKey = (Str, Str, Str, Str);

impl ReinvocationState {
    /// The object has changed: what was applied before is to see it.
    fn require_reinvocation(&mut self) {
        self.reinvoked.append(&mut self.invoked);
    }
}

/// A policy with one of its bindings and parameters that a request matches.
struct Invocation {
    bound: Arc<BoundPolicy<MutatingPolicy>>,
    binding: Arc<Binding>,
    matched: MatchedResource,
    params: Option<Value>,
}

impl Invocation {
    fn key(&self) -> InvocationKey {
        let param = |field: &str| match &self.params {
            Some(params) => Str::new(params.str_at(&["metadata", field])),
            None => Str::default(),
        };
        let policy = self.bound.policy.common.name.clone();
        (policy, self.binding.name.clone(), param("namespace"), param("name"))
    }
}

/// Why a policy refuses a request.
struct PolicyError {
    policy: Str,
    binding: Option<Str>,
    message: String,
    reason: &'static str,
}

impl PolicyError {
    fn text(&self) -> String {
        let Self { policy, binding, message, .. } = self;
        match binding {
            Some(binding) => {
                format!("policy '{policy}' with binding '{binding}' denied request: {message}")
            }
            None => format!("policy {policy:?} denied request: {message}"),
        }
    }
}

async fn dispatch(
    policies: &Compiled<MutatingPolicy>,
    visibility: Visibility,
    attributes: &Attributes<'_>,
    object: Option<&mut Value>,
    cluster: &Cluster,
) -> Result<(), ApiError> {
    let mut cx = MatchContext::new(attributes, cluster);
    let mut errors: Vec<PolicyError> = Vec::new();
    // Compat: without a name the error has that which a name is generated from.
    let unnamed = attributes.name.is_empty().then(|| attributes.forbidden(object.as_deref(), ""));
    // Compat: what matches is decided before the first policy changes the object.
    let invocations = collect(policies, visibility, &mut cx, object.as_deref(), &mut errors).await;
    if !invocations.is_empty() {
        mutate(&invocations, &mut cx, object, &mut errors).await?;
    }
    let Some(first) = errors.first() else { return Ok(()) };
    let mut status = unnamed.map_or_else(|| forbidden(attributes, ""), |error| error.status());
    status.message = first.text();
    if !first.reason.is_empty() {
        first.reason.clone_into(&mut status.reason);
    }
    if let Some(details) = &mut status.details {
        let causes = errors.iter().map(|error| Cause { message: error.text(), ..Cause::default() });
        details.causes.extend(causes);
    }
    Err(ApiError::Status(Box::new(status)))
}

async fn collect(
    policies: &Compiled<MutatingPolicy>,
    visibility: Visibility,
    cx: &mut MatchContext<'_>,
    object: Option<&Value>,
    errors: &mut Vec<PolicyError>,
) -> Vec<Invocation> {
    let mut invocations = Vec::new();
    for place in policies.candidates(&cx.attributes.gvr.resource, visibility) {
        let bound = policies.at(*place);
        let common = &bound.policy.common;
        let mut misconfigured = |why: String, binding: Option<&Binding>| {
            if !common.fails_open {
                let what = if binding.is_some() { "binding" } else { "policy" };
                errors.push(PolicyError {
                    policy: common.name.clone(),
                    binding: binding.map(|binding| binding.name.clone()),
                    message: format!("failed to configure {what}: {why}"),
                    reason: "",
                });
            }
        };
        let Some(criteria) = &common.criteria else {
            let why = "policy contained no match constraints, a required field";
            misconfigured(why.to_owned(), None);
            continue;
        };
        let matched = match criteria.matches(cx, object).await {
            Ok(None) => continue,
            Ok(Some(matched)) => matched,
            Err(error) => {
                misconfigured(plain(&error), None);
                continue;
            }
        };
        for binding in &bound.bindings {
            match binding_matches(binding, cx, object).await {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    misconfigured(plain(&error), Some(binding));
                    continue;
                }
            }
            let collected = params::collect(
                common.param_kind.as_ref(),
                binding.param_ref.as_ref(),
                cx.attributes.namespace,
                cx.cluster,
            );
            match collected.await {
                Ok(params) => invocations.extend(params.into_iter().map(|params| Invocation {
                    bound: bound.clone(),
                    binding: binding.clone(),
                    matched,
                    params,
                })),
                Err(ParamsError::Policy(why)) => {
                    misconfigured(why, None);
                    break;
                }
                Err(ParamsError::Binding(why)) => misconfigured(why, Some(binding)),
            }
        }
    }
    invocations
}

async fn mutate(
    invocations: &[Invocation],
    cx: &mut MatchContext<'_>,
    object: Option<&mut Value>,
    errors: &mut Vec<PolicyError>,
) -> Result<(), ApiError> {
    let (attributes, cluster) = (cx.attributes, cx.cluster);
    let second_run = attributes.reinvocation.is_reinvocation();
    let state = |run: &mut dyn FnMut(&mut ReinvocationState)| {
        attributes.reinvocation.with_value(NAME, |state: &mut ReinvocationState| run(state));
    };
    if second_run {
        state(&mut |state| {
            if state.last_output.as_ref() != object.as_deref() {
                state.require_reinvocation();
            }
        });
    }
    let mut is_used = invocations.iter().map(|own| own.bound.policy.uses_namespace);
    find_namespace_object(cx, is_used.any(|used| used)).await?;
    let mut changed = ChangedObject::new(attributes, cluster, object);
    for invocation in invocations {
        let policy = &*invocation.bound.policy;
        let common = &policy.common;
        let resource = cx.resource(invocation.matched);
        let before = changed.in_version(resource).await.map_err(ApiError::internal)?;
        let request = request_value(attributes, resource.0, resource.1);
        let inputs = Inputs {
            attributes,
            object: before.object.as_ref().map(|object| &object.value),
            old: before.old.as_ref().map(|old| &old.value),
            request: &request,
            namespace: namespace_object(cx),
            params: invocation.params.as_ref(),
        };
        let mut refused = |message: String| {
            if !common.fails_open {
                errors.push(PolicyError {
                    policy: common.name.clone(),
                    binding: Some(invocation.binding.name.clone()),
                    message,
                    reason: "Invalid",
                });
            }
        };
        match common.meets_conditions(cx, &inputs).await {
            Ok(true) => {}
            Ok(false) => continue,
            Err(why) => {
                refused(why);
                continue;
            }
        }
        let key = invocation.key();
        if second_run {
            let mut wanted = false;
            state(&mut |state| wanted = state.reinvoked.contains(&key));
            if !wanted {
                continue;
            }
        }
        // Nothing to change: a delete.
        let Some(mut current) = before.object.clone() else { continue };
        for mutation in &policy.mutations {
            let started = Instant::now();
            let inputs = Inputs { object: Some(&current.value), ..inputs };
            let patched = evaluate(policy, mutation, cx, &inputs).await;
            let patched = patched.map_err(Failure::Refused);
            let patched = patched
                .and_then(|patch| apply(patch, &current, resource, attributes.operation, cluster));
            let metrics = &cluster.dynamic_admission.policy_metrics;
            let error = match &patched {
                Ok(_) => "no_error",
                Err(Failure::Refused(why)) => error_type(why),
                Err(Failure::Internal(_)) => "invalid_error",
            };
            metrics.mutated(&common.name, &invocation.binding.name, error, started.elapsed());
            match patched {
                Ok(next) => current = next,
                Err(Failure::Refused(why)) => refused(why),
                Err(Failure::Internal(error)) => return Err(error),
            }
        }
        let mutated = before.object.as_ref().map(|was| &was.value) != Some(&current.value);
        if mutated {
            changed.replace(resource, current);
            attributes.reinvocation.request();
        }
        state(&mut |state| {
            if mutated {
                state.require_reinvocation();
            }
            if policy.reinvoked_if_needed {
                state.invoked.insert(key.clone());
            }
        });
    }
    changed.finish().await?;
    // Whether the object changes after this decides whether they are applied again.
    if !second_run {
        let output = changed.finished().cloned();
        state(&mut |state| state.last_output.clone_from(&output));
    }
    Ok(())
}

/// What an expression made.
enum Patch {
    Apply(Value),
    Json(Vec<Value>),
}

async fn evaluate(
    policy: &MutatingPolicy,
    mutation: &Mutation,
    cx: &MatchContext<'_>,
    inputs: &Inputs<'_>,
) -> Result<Patch, String> {
    if let Some(why) = mutation.expression.compile_error() {
        return Err(why.to_owned());
    }
    inputs
        .evaluate(&cx.cluster.authorizer, policy.uses_authorizer, |authorizer| {
            evaluate_now(policy, mutation, inputs, authorizer)
        })
        .await
}

fn evaluate_now(
    policy: &MutatingPolicy,
    mutation: &Mutation,
    inputs: &Inputs<'_>,
    authorizer: Option<&AuthorizerValues>,
) -> Result<Patch, String> {
    let mut budget = PER_OBJECT_BUDGET;
    let composition = Composition::new(&policy.common.variables);
    let values = inputs.values(authorizer, Bound::Lazy(&composition));
    let bound = policy.common.scope(true).bind(&values);
    composition.bind(&bound);
    let evaluated = mutation.expression.evaluate(&bound, Some(&composition), &mut budget);
    let value = evaluated.map_err(|OutOfBudget| OutOfBudget::TEXT.to_owned())??;
    match mutation.patch_type {
        PatchType::ApplyConfiguration => configuration(&value).map(Patch::Apply),
        PatchType::JsonPatch => operations(&value).map(Patch::Json),
    }
}

fn configuration(value: &Val<'_>) -> Result<Value, String> {
    let checked = value
        .check_type_names()
        .ok_or_else(|| "unsupported return type from ApplyConfiguration expression".to_owned())?;
    checked.map_err(|why| format!("type mismatch: {why}"))?;
    value.to_json()
}

fn operations(value: &Val<'_>) -> Result<Vec<Value>, String> {
    let Val::List(list) = value else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned());
    };
    let mut operations = Vec::with_capacity(list.len());
    for operation in list.iter() {
        let operation = operation.map_err(|error| error.to_string())?;
        if let Val::Map(map) = &operation
            && let Ok(Some(made)) = map.find(&Val::String(cel::value::Text::Ref("value")))
            && let Some(Err(why)) = made.check_type_names()
        {
            return Err(format!("type mismatch: {why}"));
        }
        let mut operation = operation.to_json().map_err(|why| {
            format!(
                "JSONPath valueExpression evaluated to a type that could not marshal to JSON: {why}"
            )
        })?;
        // Compat: what is not given is empty, and not absent.
        for field in ["op", "path"] {
            if operation.get(field).is_none() {
                operation.set_at(&[field], "");
            }
        }
        operations.push(operation);
    }
    Ok(operations)
}

/// Why a mutation could not be made.
enum Failure {
    /// `failurePolicy` decides what that means.
    Refused(String),
    /// Compat: what is no object of its kind any more ends the request, whatever `failurePolicy` is.
    Internal(ApiError),
}

/// The object with a patch applied, checked against the types of its kind and with defaults.
fn apply(
    patch: Patch,
    current: &VersionedObject,
    resource: (&meta::GroupVersionResource, &meta::GroupVersionKind),
    operation: Operation,
    cluster: &Cluster,
) -> Result<VersionedObject, Failure> {
    let (gvr, gvk) = resource;
    let strict = matches!(patch, Patch::Json(_));
    let patched = match patch {
        Patch::Json(operations) => {
            let patch = JsonPatch::decode(&Value::Array(operations));
            let patched = patch.and_then(|patch| patch.apply(&current.value));
            match patched {
                Ok(patched) => patched,
                // A `test` that fails makes the patch one that changes nothing.
                Err(PatchError::TestFailed(_)) => return Ok(current.clone()),
                Err(error) => return Err(Failure::Refused(format!("JSON Patch: {error}"))),
            }
        }
        Patch::Apply(mut configuration) => {
            configuration.set_at(&["kind"], gvk.kind.clone());
            configuration.set_at(&["apiVersion"], gvk.group_version().to_string());
            let merged = cluster.objects.merge_applied(gvr, gvk, &current.value, &configuration);
            merged.map_err(|why| Failure::Refused(format!("error applying patch: {why}")))?
        }
    };
    let decoded = patched_object::decode(cluster, operation, resource, &patched, strict);
    match decoded.map_err(Failure::Internal)? {
        Patched::Object(object) => Ok(object),
        Patched::Unusable(Unusable::OtherKind(why)) => Err(not_converted(&why)),
        Patched::Unusable(Unusable::OtherVersion(version, _)) => Err(not_converted(&format!(
            "request to convert CR from an invalid group/version: {version}"
        ))),
        Patched::Unusable(why) => Err(Failure::Internal(why.into_error())),
    }
}

fn not_converted(why: &str) -> Failure {
    Failure::Internal(ApiError::Internal(format!("failed to convert object: {why}")))
}
