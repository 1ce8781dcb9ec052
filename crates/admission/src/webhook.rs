//! Admission webhooks: the plugins MutatingAdmissionWebhook and ValidatingAdmissionWebhook.
//!
//! `configuration` compiles the configurations whenever they change; a request looks up those for its
//! resource, matches them (`crate::matching`, `crate::expressions`), and calls them (`call`) with an
//! AdmissionReview (`review`).

mod call;
mod configuration;
pub mod credentials;
mod metrics;
mod mutating;
mod review;
mod validating;

pub use self::{
    configuration::Webhooks,
    credentials::{AuthInfos, AuthInfosError},
    metrics::WebhookMetrics,
    mutating::MutatingAdmissionWebhook,
    validating::ValidatingAdmissionWebhook,
};

pub(crate) use self::{
    call::Clients,
    metrics::{counter, histogram},
    review::{decode_answer, details},
};

use meta::{ApiError, Value};

use self::configuration::Webhook;
use crate::{
    expressions::{Inputs, request_value},
    matching::{MatchContext, MatchedResource},
    versioned::VersionedObjects,
};

/// Whether the rules and selectors of a webhook match a request, before its match conditions.
async fn matches(
    webhook: &Webhook,
    cx: &mut MatchContext<'_>,
    object: Option<&Value>,
) -> Result<Option<MatchedResource>, ApiError> {
    webhook.criteria.matches(cx, object).await
}

/// Whether the match conditions let a request through to the webhook.
async fn meets_conditions(
    webhook: &Webhook,
    cx: &MatchContext<'_>,
    matched: MatchedResource,
    objects: &VersionedObjects,
    stage: &'static str,
) -> Result<bool, ApiError> {
    if webhook.conditions.is_empty() {
        return Ok(true);
    }
    let (attributes, cluster) = (cx.attributes, cx.cluster);
    let (resource, kind) = cx.resource(matched);
    let request = request_value(attributes, resource, kind);
    let inputs = Inputs {
        attributes,
        object: objects.object.as_ref().map(|object| &object.value),
        old: objects.old.as_ref().map(|old| &old.value),
        request: &request,
        namespace: None,
        params: None,
    };
    let started = std::time::Instant::now();
    let outcome = webhook.conditions.evaluate(&inputs, &cluster.authorizer).await;
    let metrics = &cluster.dynamic_admission.metrics;
    let labels = [webhook.name.as_str(), "webhook", stage, attributes.operation.as_str()];
    metrics.conditions_evaluated(&labels, &outcome, started.elapsed());
    match outcome.matches {
        Ok(true) => Ok(true),
        Ok(false) => {
            metrics.condition_exclusions.with_label_values(&labels).inc();
            Ok(false)
        }
        Err(why) => Err(ApiError::Forbidden {
            resource: attributes.gvr.group_resource(),
            name: attributes.name.to_owned(),
            why,
            causes: Vec::new(),
        }),
    }
}
