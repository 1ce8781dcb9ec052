//! Who am I?

use meta::{ApiError, Value, time::Time, value};
use registry::{ComputeContext, ComputedResource, Outcome, Pinned};

use crate::access::user_info;

pub(crate) struct SelfSubjectReview;

impl ComputedResource for SelfSubjectReview {
    fn create<'a>(
        &'a self,
        _review: Value,
        cx: &'a ComputeContext<'a>,
    ) -> Pinned<'a, Result<Outcome, ApiError>> {
        let answer = value!({
            "metadata": {"creationTimestamp": (Time::now().to_rfc3339())},
            "status": {"userInfo": (user_info(cx.user))},
        });
        Box::pin(std::future::ready(Ok(Outcome::Object(answer))))
    }
}
