//! Authorization: may this user do this? Each authorizer allows, denies, or has no opinion; a union
//! asks them in turn.

pub mod always;
pub mod node;
pub mod rbac;
pub mod union;

use meta::{
    RequestInfo, User,
    rules::{NonResourceRule, ResourceRule, Rules},
};

pub use self::{
    always::{AlwaysAllow, AlwaysDeny, PrivilegedGroup},
    union::Union,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow,
    Deny,
    /// Nothing to say; the next authorizer is asked, and in the end the answer is no.
    NoOpinion,
}

/// A decision, why, and what went wrong on the way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub decision: Decision,
    pub reason: String,
    pub error: Option<String>,
}

impl Verdict {
    pub fn allow(reason: impl Into<String>) -> Self {
        Self { decision: Decision::Allow, reason: reason.into(), error: None }
    }

    pub fn no_opinion(reason: impl Into<String>) -> Self {
        Self { decision: Decision::NoOpinion, reason: reason.into(), error: None }
    }
}

pub trait Authorizer: Send + Sync + 'static {
    fn decide(&self, user: &User, info: &RequestInfo) -> Verdict;

    /// What the user may do in a namespace, as far as it can be listed.
    fn rules(&self, user: &User, namespace: &str) -> Rules;
}

/// Several errors as one text, each said once; None if there are none.
pub(crate) fn aggregate(errors: &[String]) -> Option<String> {
    let mut once: Vec<&str> = Vec::new();
    for error in errors {
        if !once.contains(&error.as_str()) {
            once.push(error);
        }
    }
    match once.as_slice() {
        [] => None,
        [one] => Some((*one).to_owned()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}
