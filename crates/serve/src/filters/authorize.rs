//! Asks the authorizer whether the user may do this. `cx.user` is the impersonated user, if there is one.

use auth::{Attributes, Authorizer, authz::Decision};
use meta::ApiError;

use crate::context::Context;

/// What is counted of a decision, and the decision.
pub(crate) async fn authorize(
    authorizer: &dyn Authorizer,
    cx: &Context,
) -> (&'static str, Result<(), ApiError>) {
    let attributes = Attributes::of_request(&cx.user, &cx.info);
    let verdict = authorizer.authorize(&attributes).await;
    if cx.audit.record.is_on() {
        let annotations = &cx.audit.record.annotations;
        // Compat: an authorizer that failed has made no decision.
        if verdict.is_allowed() || verdict.error.is_none() {
            let decision = if verdict.is_allowed() { "allow" } else { "forbid" };
            annotations.add("authorization.k8s.io/decision", decision);
            annotations.add("authorization.k8s.io/reason", verdict.reason.as_str());
        } else {
            annotations.add("authorization.k8s.io/reason", "internal error");
        }
    }
    let counted = match (verdict.decision, &verdict.error) {
        (Decision::Allow, _) => "allowed",
        (_, Some(_)) => "error",
        (Decision::Deny, None) => "denied",
        (Decision::NoOpinion, None) => "no-opinion",
    };
    (counted, verdict.into_result(&attributes))
}
