//! May this user do this? `cx.user` is who the request acts as, not who sent it.

use auth::{Authorizer, Decision};
use meta::ApiError;

use crate::context::Context;

pub(crate) fn authorize(judge: &dyn Authorizer, cx: &Context) -> Result<(), ApiError> {
    let verdict = judge.decide(&cx.user, &cx.info);
    if verdict.decision == Decision::Allow {
        return Ok(());
    }
    // One role that cannot be resolved does not undo another that allows: an allow beats an error.
    if let Some(error) = verdict.error {
        return Err(ApiError::Internal(error));
    }
    Err(ApiError::forbidden(&cx.user, &cx.info, &verdict.reason))
}
