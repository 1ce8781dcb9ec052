//! Authorization: may this user do this? Each authorizer allows, denies, or has no opinion; a union
//! asks them in turn.

pub mod always;
pub mod node;
pub mod rbac;
pub mod union;

use meta::{RequestInfo, Str, User};

pub use self::{
    always::{AlwaysAllow, AlwaysDeny, Masters},
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

/// Everything that somebody may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    pub resource: Vec<ResourceRule>,
    pub non_resource: Vec<NonResourceRule>,
    /// There may be more that can't be listed (a webhook decides).
    pub incomplete: bool,
    pub error: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceRule {
    pub verbs: Vec<Str>,
    pub api_groups: Vec<Str>,
    pub resources: Vec<Str>,
    pub resource_names: Vec<Str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NonResourceRule {
    pub verbs: Vec<Str>,
    pub urls: Vec<Str>,
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
