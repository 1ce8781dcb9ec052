//! May this user do this? `cx.user` is who the request acts as, not who sent it.

use auth::{Attributes, Authorizer};
use meta::ApiError;

use crate::context::Context;

pub(crate) async fn authorize(authorizer: &dyn Authorizer, cx: &Context) -> Result<(), ApiError> {
    let attributes = Attributes::of_request(&cx.user, &cx.info);
    let verdict = authorizer.authorize(&attributes).await;
    let decision = if verdict.is_allowed() { "allow" } else { "forbid" };
    cx.audit.annotations.add("authorization.k8s.io/decision", decision);
    cx.audit.annotations.add("authorization.k8s.io/reason", verdict.reason.as_str());
    verdict.into_result(&attributes)
}
