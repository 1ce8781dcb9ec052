//! `TokenReview`: the user of a bearer token.

use std::sync::Arc;

use meta::{ApiError, Value};
use registry::{ActionOutcome, BoxFuture, ComputeContext, ComputedResource};

use crate::access::{TokenAuthenticator, texts, user_info};

pub(crate) struct TokenReview(pub(crate) Arc<dyn TokenAuthenticator>);

impl ComputedResource for TokenReview {
    fn create<'a>(
        &'a self,
        mut review: Value,
        _cx: &'a ComputeContext<'a>,
    ) -> BoxFuture<'a, Result<ActionOutcome, ApiError>> {
        Box::pin(async move {
            let token = review.str_at(&["spec", "token"]).to_owned();
            if token.is_empty() {
                return Err(ApiError::bad_request(
                    "token is required for TokenReview in authentication",
                ));
            }
            let audiences = texts(&review, &["spec", "audiences"]);
            let mut status = Value::object();
            match self.0.authenticate_token(&token, &audiences).await {
                Ok(Some(found)) => {
                    status.set_at(&["authenticated"], true);
                    status.set_at(&["user"], user_info(&found.user));
                    if !found.audiences.is_empty() {
                        status.set_at(&["audiences"], found.audiences);
                    }
                }
                Ok(None) => status.set_at(&["user"], Value::object()),
                Err(error) => {
                    status.set_at(&["user"], Value::object());
                    status.set_at(&["error"], error);
                }
            }
            review.set_at(&["status"], status);
            Ok(ActionOutcome::Object(review))
        })
    }
}
