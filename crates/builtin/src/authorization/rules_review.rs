//! `SelfSubjectRulesReview`: what the client may do in a namespace.

use std::sync::Arc;

use meta::{
    ApiError, Str, Value,
    authorization::{Authorizer, Rules},
    value,
};
use registry::{ActionOutcome, BoxFuture, ComputeContext, ComputedResource};

pub(crate) struct RulesReview(pub(crate) Arc<dyn Authorizer>);

impl ComputedResource for RulesReview {
    fn create<'a>(
        &'a self,
        review: Value,
        cx: &'a ComputeContext<'a>,
    ) -> BoxFuture<'a, Result<ActionOutcome, ApiError>> {
        Box::pin(async move {
            let namespace = review.str_at(&["spec", "namespace"]);
            if namespace.is_empty() {
                return Err(ApiError::bad_request("no namespace on request"));
            }
            let rules = self.0.rules(cx.user, namespace);
            // Compat: the spec is not sent back.
            let answer = value!({"metadata": {}, "spec": {}, "status": (status(&rules))});
            Ok(ActionOutcome::Object(answer))
        })
    }
}

fn status(rules: &Rules) -> Value {
    let list = |texts: &[Str]| Value::from(texts.to_vec());
    let resource = rules.resource.iter().map(|rule| {
        let mut shown = value!({"verbs": (list(&rule.verbs))});
        let optional = [
            ("apiGroups", &rule.api_groups),
            ("resources", &rule.resources),
            ("resourceNames", &rule.resource_names),
        ];
        for (field, texts) in optional {
            if !texts.is_empty() {
                shown.set_at(&[field], list(texts));
            }
        }
        shown
    });
    let non_resource = rules
        .non_resource
        .iter()
        .map(|rule| value!({"verbs": (list(&rule.verbs)), "nonResourceURLs": (list(&rule.urls))}));
    let mut status = value!({
        "resourceRules": (resource.collect::<Vec<_>>()),
        "nonResourceRules": (non_resource.collect::<Vec<_>>()),
        "incomplete": (rules.incomplete),
    });
    if let Some(error) = &rules.error {
        status.set_at(&["evaluationError"], error.as_str());
    }
    status
}
