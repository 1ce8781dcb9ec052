//! The plugin MutatingAdmissionWebhook: webhooks are called one after the other, each with what those
//! before it have made of the object, and a second time if they ask for it.

use std::{collections::BTreeSet, time::Instant};

use meta::{ApiError, RawJson, Str, Value, field::quote};
use patch::json_patch::JsonPatch;

use super::{
    configuration::Compiled,
    matches, meets_conditions,
    review::{JSON_PATCH, Response},
    validating::{Answered, Invocation, Refusal, options_json},
};
use crate::{
    Attributes, BoxFuture, Cluster, Operation, Phases, Plugin,
    changed_object::ChangedObject,
    matching::{MatchContext, Visibility},
    ordered_json,
    patched_object::{self, Patched},
    versioned::{self, VersionedObject},
};

pub struct MutatingAdmissionWebhook;

const NAME: &str = "MutatingAdmissionWebhook";
const STAGE: &str = "admit";

impl Plugin for MutatingAdmissionWebhook {
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
        let webhooks = &dynamic.mutating_webhooks;
        let resource = &attributes.gvr.resource;
        let visibility = Visibility::to_webhooks(attributes.gvk);
        let is_complete = visibility != Visibility::All || dynamic.are_synced();
        if is_complete && webhooks.are_idle(resource, visibility) {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(async move {
            if !is_complete {
                dynamic.wait_until_synced(attributes).await?;
            }
            dispatch(&webhooks.current(), visibility, attributes, object, cluster).await
        })
    }
}

/// What is remembered between the two runs.
#[derive(Default)]
struct ReinvocationState {
    last_output: Option<Value>,
    /// Webhooks with `reinvocationPolicy: IfNeeded` that were called and are not to be called again
    /// yet.
    invoked: BTreeSet<Str>,
    /// Those that are called again in the second run.
    reinvoked: BTreeSet<Str>,
}

impl ReinvocationState {
    /// The object has changed: what was called before is to see it.
    fn require_reinvocation(&mut self) {
        self.reinvoked.append(&mut self.invoked);
    }
}

async fn dispatch(
    webhooks: &Compiled,
    visibility: Visibility,
    attributes: &Attributes<'_>,
    object: Option<&mut Value>,
    cluster: &Cluster,
) -> Result<(), ApiError> {
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
    let mut changed = ChangedObject::new(attributes, cluster, object);
    let mut cx = MatchContext::new(attributes, cluster);
    let mut options = None;
    let mut may_be_called_again = false;
    for index in webhooks.candidates(&attributes.gvr.resource, visibility) {
        let webhook = webhooks.at(*index);
        let Some(matched) = matches(webhook, &mut cx, changed.current()).await? else { continue };
        let resource = cx.resource(matched);
        let objects = changed.in_version(resource).await.map_err(ApiError::internal)?;
        if !meets_conditions(webhook, &cx, matched, &objects, "admit").await? {
            continue;
        }
        if second_run {
            let mut wanted = false;
            state(&mut |state| wanted = state.reinvoked.contains(&webhook.uid));
            if !wanted {
                continue;
            }
        }
        let invocation = Invocation {
            webhook,
            attributes,
            resource,
            objects: &objects,
            options: options.get_or_insert_with(|| options_json(attributes)),
            cluster,
        };
        may_be_called_again |= webhook.reinvoked_if_needed;
        let started = Instant::now();
        let round = u8::from(second_run);
        let key = |prefix: &str| {
            format!("{prefix}mutation.webhook.admission.k8s.io/round_{round}_index_{index}")
        };
        let called = match invocation.call(true).await {
            Ok(response) => mutate(&invocation, &response, round, *index),
            Err(refusal) => Err(refusal),
        };
        let mut unusable = None;
        let (mutated, refusal) = match called {
            Ok(Mutation::None) => (false, None),
            Ok(Mutation::Patched(patched)) => {
                let was = objects.object.as_ref().map(|was| &was.value);
                let is_new = was != Some(&patched.value) || changed.has_unrounded_times(resource.0);
                changed.replace(resource, patched);
                (is_new, None)
            }
            Ok(Mutation::Unusable(error)) => {
                unusable = Some(error);
                (true, None)
            }
            Err(refusal) => (false, Some(refusal)),
        };
        let told = ordered_json(&[
            ("configuration", webhook.configuration.clone().into()),
            ("webhook", webhook.name.clone().into()),
            ("mutated", mutated.into()),
        ]);
        attributes.annotate(key(""), told);
        state(&mut |state| {
            if mutated {
                state.require_reinvocation();
            }
            if webhook.reinvoked_if_needed {
                state.invoked.insert(webhook.uid.clone());
            }
        });
        if mutated {
            attributes.reinvocation.request();
        }
        invocation.settle(refusal, started, STAGE, || key("failed-open."))?;
        if let Some(error) = unusable {
            return Err(error);
        }
    }
    changed.finish().await?;
    // Whether the object changes after this decides whether they are called again.
    if may_be_called_again && !second_run {
        let output = changed.finished().cloned();
        state(&mut |state| state.last_output.clone_from(&output));
    }
    Ok(())
}

/// What an answer makes of the object.
enum Mutation {
    /// The answer has no patch.
    None,
    Patched(VersionedObject),
    /// No request can go on with the patched object.
    Unusable(ApiError),
}

/// Applies the patch of an answer.
fn mutate(
    invocation: &Invocation<'_>,
    response: &Response,
    round: u8,
    index: usize,
) -> Result<Mutation, Refusal> {
    let webhook = invocation.webhook;
    let name = quote(&webhook.name);
    if response.patch.is_empty() {
        return Ok(Mutation::None);
    }
    let calling = |why: String| Refusal::Calling {
        message: format!("failed calling webhook {name}: {why}"),
        code: 503,
        answered: Answered::Yes,
    };
    let undecodable =
        |why: String| calling(format!("received undecodable patch in webhook response: {why}"));
    let decoded = versioned::decode(&response.patch);
    let operations = decoded.map_err(|error| undecodable(plain(&error)))?;
    check_operations(&operations).map_err(undecodable)?;
    let internal = |why: String| Refusal::Internal(ApiError::Internal(why));
    if operations.as_array().is_none_or(<[Value]>::is_empty) {
        return Ok(Mutation::None);
    }
    let Some(object) = &invocation.objects.object else {
        return Err(internal(format!(
            "admission webhook {name} attempted to modify the object, which is not supported for \
             this operation"
        )));
    };
    if response.patch_type != JSON_PATCH {
        return Err(calling(format!("unsupported patch type {}", quote(&response.patch_type))));
    }
    let patch =
        JsonPatch::decode_leniently(&operations).map_err(|error| internal(error.to_string()))?;
    let patched = patch.apply(&object.value).map_err(|error| internal(error.to_string()))?;
    let decoded = patched_object::decode(
        invocation.cluster,
        invocation.attributes.operation,
        invocation.resource,
        &patched,
        false,
    );
    let changed = match decoded.map_err(|error| internal(plain(&error)))? {
        Patched::Object(object) => Mutation::Patched(object),
        Patched::Unusable(why) => Mutation::Unusable(why.into_error()),
    };
    // Compat: values are shown as the webhook has written them.
    let text = codec::json::sort_members_of_items(&response.patch);
    let annotated = RawJson::new(text, operations).into();
    let told = ordered_json(&[
        ("configuration", webhook.configuration.clone().into()),
        ("webhook", webhook.name.clone().into()),
        ("patch", annotated),
        ("patchType", JSON_PATCH.into()),
    ]);
    // Compat: only audit events of level Request and above have this one.
    invocation
        .attributes
        .annotate(format!("patch.webhook.admission.k8s.io/round_{round}_index_{index}"), told);
    Ok(changed)
}

/// Compat: the words of Go's decoder of patches.
fn check_operations(operations: &Value) -> Result<(), String> {
    let unfit = |value: &Value, ty: &str| {
        let found = value.type_name();
        Err(format!("json: cannot unmarshal {found} into Go value of type jsonpatch.{ty}"))
    };
    let operations = match operations {
        Value::Null => return Ok(()),
        Value::Array(operations) => operations,
        other => return unfit(other, "Patch"),
    };
    let is_operation = |own: &&Value| matches!(own, Value::Object(_) | Value::Null);
    match operations.iter().find(|own| !is_operation(own)) {
        Some(other) => unfit(other, "Operation"),
        None => Ok(()),
    }
}

fn plain(error: &ApiError) -> String {
    match error {
        ApiError::Internal(why) => why.clone(),
        other => other.to_string(),
    }
}
