//! Who answers for the kinds that keep nothing.

use std::sync::Arc;

use registry::Answerer;
use store::Backend;

use crate::{
    Access,
    authentication::{self_subject_review::SelfSubjectReview, token_review::TokenReview},
    authorization::{
        access_review::{AccessReview, Scope},
        rules_review::RulesReview,
    },
    core::component_status::ComponentStatuses,
};

pub(crate) fn of(
    group: &str,
    kind: &str,
    access: &Arc<dyn Access>,
    backend: &Arc<dyn Backend>,
) -> Option<Arc<dyn Answerer>> {
    let access_review = |scope| AccessReview { scope, access: access.clone() };
    Some(match (group, kind) {
        ("", "ComponentStatus") => Arc::new(ComponentStatuses(backend.clone())),
        ("authentication.k8s.io", "SelfSubjectReview") => Arc::new(SelfSubjectReview),
        ("authentication.k8s.io", "TokenReview") => Arc::new(TokenReview(access.clone())),
        ("authorization.k8s.io", "SelfSubjectAccessReview") => {
            Arc::new(access_review(Scope::Oneself))
        }
        ("authorization.k8s.io", "SubjectAccessReview") => Arc::new(access_review(Scope::Anybody)),
        ("authorization.k8s.io", "LocalSubjectAccessReview") => {
            Arc::new(access_review(Scope::AnybodyInNamespace))
        }
        ("authorization.k8s.io", "SelfSubjectRulesReview") => Arc::new(RulesReview(access.clone())),
        _ => return None,
    })
}
