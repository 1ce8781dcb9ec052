//! The plugin ValidatingAdmissionWebhook: all matching webhooks are called at the same time, and one
//! refusal is enough.

use std::{
    collections::{HashMap, hash_map::Entry},
    time::Instant,
};

use bytes::Bytes;
use futures_util::future::join_all;
use meta::{ApiError, Value, json};

use super::{
    configuration::{Compiled, Webhook},
    matches, meets_conditions,
    metrics::Observed,
    review::{self, InvalidAnswer, Response},
};
use crate::{
    Attributes, BoxFuture, Cluster, Operation, Phases, Plugin,
    matching::{MatchContext, MatchedResource, Visibility},
    ordered_json,
    versioned::VersionedObjects,
};

pub struct ValidatingAdmissionWebhook;

const STAGE: &str = "validating";

impl Plugin for ValidatingAdmissionWebhook {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionWebhook"
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
        let webhooks = &dynamic.validating_webhooks;
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

async fn dispatch(
    webhooks: &Compiled,
    visibility: Visibility,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
    cluster: &Cluster,
) -> Result<(), ApiError> {
    let mut cx = MatchContext::new(attributes, cluster);
    let mut versions: HashMap<MatchedResource, VersionedObjects> = HashMap::new();
    let mut relevant = Vec::new();
    for place in webhooks.candidates(&attributes.gvr.resource, visibility) {
        let webhook = webhooks.at(*place);
        let Some(matched) = matches(webhook, &mut cx, object).await? else { continue };
        if let Entry::Vacant(vacant) = versions.entry(matched) {
            let resource = cx.resource(matched);
            let objects = VersionedObjects::new(attributes, cluster, object, resource).await;
            vacant.insert(objects.map_err(ApiError::internal)?);
        }
        if meets_conditions(webhook, &cx, matched, &versions[&matched], "validating").await? {
            relevant.push((webhook, matched));
        }
    }
    if relevant.is_empty() {
        return Ok(());
    }
    let options = options_json(attributes);
    let calls = relevant.iter().enumerate().map(|(index, (webhook, matched))| {
        let invocation = Invocation {
            webhook,
            attributes,
            resource: cx.resource(*matched),
            objects: &versions[matched],
            options: &options,
            cluster,
        };
        invoke(invocation, index)
    });
    join_all(calls).await.into_iter().collect()
}

/// One call that is to be made.
pub(super) struct Invocation<'a> {
    pub(super) webhook: &'a Webhook,
    pub(super) attributes: &'a Attributes<'a>,
    pub(super) resource: (&'a meta::GroupVersionResource, &'a meta::GroupVersionKind),
    pub(super) objects: &'a VersionedObjects,
    pub(super) options: &'a Bytes,
    pub(super) cluster: &'a Cluster,
}

/// The options of the request as JSON, for all reviews; their fields in the order of Go's types.
pub(super) fn options_json(attributes: &Attributes<'_>) -> Bytes {
    const ORDER: [&str; 10] = [
        "kind",
        "apiVersion",
        "gracePeriodSeconds",
        "preconditions",
        "orphanDependents",
        "propagationPolicy",
        "dryRun",
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "fieldManager",
        "fieldValidation",
    ];
    let options = attributes.options.to_object(attributes.operation);
    let Value::Object(fields) = &options else { return json::to_string(&options).into() };
    let mut out = vec![b'{'];
    for (name, value) in ORDER.iter().filter_map(|name| Some((name, fields.get(name)?))) {
        if out.len() > 1 {
            out.push(b',');
        }
        json::write_string(&mut out, name);
        out.push(b':');
        match value.as_object().filter(|_| *name == "preconditions") {
            None => json::write_value(&mut out, value),
            Some(given) => {
                let members = ["uid", "resourceVersion"];
                let members =
                    members.into_iter().filter_map(|own| Some((own, given.get(own)?.clone())));
                let members: Vec<(&str, Value)> = members.collect();
                out.extend_from_slice(ordered_json(&members).as_bytes());
            }
        }
    }
    out.push(b'}');
    out.into()
}

/// Whether a failed call has an answer. Its message may repeat what the webhook says, which is for the client
/// and not for the log: a webhook could be pointed at a server whose answers are confidential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answered {
    Yes,
    No,
}

/// Why a webhook did not let a request through.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It could not be asked, or its answer was none; `failurePolicy` decides what that means.
    Calling { message: String, code: u16, answered: Answered },
    /// It said no.
    Rejected(ApiError),
    /// The server itself cannot go on.
    Internal(ApiError),
}

impl Invocation<'_> {
    /// Compat: kube-apiserver's names.
    fn call_span(&self, mutating: bool, uid: &str) -> trace::Span {
        let name = if mutating { "Call mutating webhook" } else { "Call validating webhook" };
        let mut span = trace::start(name);
        if span.is_recorded() {
            span.attribute("configuration", self.webhook.configuration.as_str());
            span.attribute("webhook", self.webhook.name.as_str());
            span.attribute("resource", self.attributes.gvr.resource.as_str());
            span.attribute("subresource", self.attributes.subresource);
            span.attribute("operation", self.attributes.operation.as_str());
            span.attribute("UID", uid);
        }
        span
    }

    /// Asks the webhook; its warnings and audit annotations are taken over.
    pub(super) async fn call(&self, mutating: bool) -> Result<Response, Refusal> {
        let (webhook, attributes) = (self.webhook, self.attributes);
        let calling = |why: String, code: u16, answered: Answered| {
            let name = meta::field::quote(&webhook.name);
            let message = format!("failed calling webhook {name}: {why}");
            Refusal::Calling { message, code, answered }
        };
        if attributes.is_dry_run() {
            match webhook.side_effects.as_str() {
                "None" | "NoneOnDryRun" => {}
                "" => {
                    return Err(calling(
                        "Webhook SideEffects is nil".to_owned(),
                        400,
                        Answered::No,
                    ));
                }
                _ => {
                    return Err(Refusal::Internal(ApiError::BadRequest(format!(
                        "admission webhook {} does not support dry run",
                        meta::field::quote(&webhook.name)
                    ))));
                }
            }
        }
        let Some(version) = webhook.review_version else {
            let why = "could not create admission objects: webhook does not accept known \
                       AdmissionReview versions (v1, v1beta1)";
            return Err(calling(why.to_owned(), 400, Answered::No));
        };
        let uid = uuid::Uuid::new_v4().to_string();
        let body =
            review::request(attributes, self.resource, self.objects, self.options, version, &uid);
        let mut span = self.call_span(mutating, &uid);
        let (timeout, objects) = (webhook.timeout, &*self.cluster.objects);
        let posted = webhook.endpoint.post(body, timeout, attributes.deadline, objects);
        let answer = span.run(posted).await;
        span.event("Request completed", Vec::new());
        drop(span);
        let answer = answer.map_err(|error| calling(error.message, error.code, error.answered))?;
        let response = review::response(objects, &answer, version, &uid, mutating);
        let response = response.map_err(|why| match why {
            InvalidAnswer::Undecodable(why) => {
                calling(format!("failed to call webhook: {why}"), 503, Answered::Yes)
            }
            InvalidAnswer::Invalid(why) => {
                calling(format!("received invalid webhook response: {why}"), 503, Answered::Yes)
            }
        })?;
        for (key, text) in &response.audit_annotations {
            attributes.annotate(format!("{}/{key}", webhook.name), text.as_str());
        }
        for warning in &response.warnings {
            attributes.warn(warning.as_str());
        }
        if response.allowed {
            return Ok(response);
        }
        Err(Refusal::Rejected(review::denial(webhook, response.status.as_ref())))
    }

    /// Counts a call, and decides what a refusal means: Ok lets the request through.
    pub(super) fn settle(
        &self,
        refusal: Option<Refusal>,
        started: Instant,
        stage: &'static str,
        failed_open_key: impl FnOnce() -> String,
    ) -> Result<(), ApiError> {
        let (webhook, attributes) = (self.webhook, self.attributes);
        let metrics = &self.cluster.dynamic_admission.metrics;
        let (code, rejected, outcome) = match refusal {
            None => (200, None, Ok(())),
            Some(Refusal::Calling { message, code, answered }) if webhook.fails_open => {
                let why = logged(&message, answered);
                tracing::warn!(webhook = %webhook.name, code, "failed calling webhook, failing open: {why}");
                metrics.failed_open(&webhook.name, stage);
                attributes.annotate(failed_open_key(), webhook.name.as_str());
                // The webhook has used up the time of the request.
                let is_over =
                    attributes.deadline.is_some_and(|at| at <= tokio::time::Instant::now());
                (code, None, if is_over { Err(timed_out()) } else { Ok(()) })
            }
            Some(Refusal::Calling { message, code, answered }) => {
                let why = logged(&message, answered);
                tracing::warn!(webhook = %webhook.name, code, "failed calling webhook, failing closed: {why}");
                (code, Some("calling_webhook_error"), Err(ApiError::Internal(message)))
            }
            Some(Refusal::Rejected(error)) => (error.status().code, Some("no_error"), Err(error)),
            Some(Refusal::Internal(error)) => (0, Some("apiserver_internal_error"), Err(error)),
        };
        metrics.observe(&Observed {
            name: &webhook.name,
            stage,
            operation: attributes.operation,
            elapsed: started.elapsed(),
            code,
            rejected,
        });
        outcome
    }
}

/// Compat: kube-apiserver's words.
fn timed_out() -> ApiError {
    let message = "Timeout: request did not complete within requested timeout";
    ApiError::Timeout(message.to_owned())
}

fn logged(message: &str, answered: Answered) -> &str {
    match answered {
        Answered::Yes => "its answer is not good",
        Answered::No => message,
    }
}

async fn invoke(invocation: Invocation<'_>, index: usize) -> Result<(), ApiError> {
    let started = Instant::now();
    let refusal = invocation.call(false).await.err();
    invocation.settle(refusal, started, STAGE, || {
        format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}")
    })
}
