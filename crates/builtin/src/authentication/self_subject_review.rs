//! SelfSubjectReview (`kubectl auth whoami`): the user of the request.

use meta::{ApiError, Value, time::Time, value};
use registry::{ActionOutcome, BoxFuture, ComputeContext, ComputedResource};

use crate::access::user_info;

pub(crate) struct SelfSubjectReview;

impl ComputedResource for SelfSubjectReview {
    fn create<'a>(
        &'a self,
        _review: Value,
        cx: &'a ComputeContext<'a>,
    ) -> BoxFuture<'a, Result<ActionOutcome, ApiError>> {
        let answer = value!({
            "metadata": {"creationTimestamp": (Time::now().to_rfc3339())},
            "status": {"userInfo": (user_info(cx.user))},
        });
        Box::pin(std::future::ready(Ok(ActionOutcome::Object(answer))))
    }
}
