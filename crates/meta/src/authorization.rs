//! The one interface to authorization: the request ([`Attributes`]), the [`Authorizer`] and its
//! [`Verdict`]. The handler chain, escalation checks,
//! admission, access reviews and CEL's `authorizer` all use it.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use crate::{ApiError, BoxFuture, GroupResource, RequestInfo, Str, User};

/// What a decision is about. Borrowed, so that it costs nothing to make one per request, and so that
/// a caller can ask the same with another verb: `Attributes { verb: "create", ..attributes }`.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    pub user: &'a User,
    pub verb: &'a str,
    /// False: only `verb` and `path` mean anything.
    pub is_resource: bool,
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub path: &'a str,
    /// The selectors of a list, watch or deletecollection as the client sent them; "" for none.
    pub field_selector: &'a str,
    pub label_selector: &'a str,
}

impl<'a> Attributes<'a> {
    /// What a request asks for.
    pub fn of_request(user: &'a User, info: &'a RequestInfo) -> Self {
        Self {
            user,
            verb: &info.verb,
            is_resource: info.is_resource,
            group: &info.group,
            version: &info.version,
            resource: &info.resource,
            subresource: &info.subresource,
            namespace: &info.namespace,
            name: &info.name,
            path: &info.path,
            field_selector: &info.field_selector,
            label_selector: &info.label_selector,
        }
    }

    /// A verb on a resource; the caller fills in the rest.
    pub fn of_resource(user: &'a User, verb: &'a str, group: &'a str, resource: &'a str) -> Self {
        Self { is_resource: true, group, resource, ..Self::of_path(user, verb, "") }
    }

    /// A verb on a path that is no resource.
    pub fn of_path(user: &'a User, verb: &'a str, path: &'a str) -> Self {
        Self {
            user,
            verb,
            is_resource: false,
            group: "",
            version: "",
            resource: "",
            subresource: "",
            namespace: "",
            name: "",
            path,
            field_selector: "",
            label_selector: "",
        }
    }

    pub fn is_read_only(&self) -> bool {
        matches!(self.verb, "get" | "list" | "watch")
    }

    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(self.group, self.resource)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow,
    Deny,
    /// The next authorizer is asked; if all have no opinion, the request is forbidden.
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

    /// One role that cannot be resolved does not undo another that allows: an allow beats an error.
    pub fn into_result(self, attributes: &Attributes<'_>) -> Result<(), ApiError> {
        match (self.decision, self.error) {
            (Decision::Allow, _) => Ok(()),
            (_, Some(error)) => Err(ApiError::Internal(error)),
            (_, None) => Err(ApiError::forbidden(attributes, &self.reason)),
        }
    }

    pub fn is_allowed(&self) -> bool {
        self.decision == Decision::Allow
    }
}

/// Err is what the client gets: 403, or 500 where the authorizer itself failed.
pub async fn require(
    authorizer: &dyn Authorizer,
    attributes: &Attributes<'_>,
) -> Result<(), ApiError> {
    authorizer.authorize(attributes).await.into_result(attributes)
}

/// Decides whether a user may do something.
pub trait Authorizer: Send + Sync + 'static {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Authorize<'a>;

    /// What the user may do in a namespace, as far as it can be listed.
    fn rules(&self, user: &User, namespace: &str) -> Rules;
}

/// The verdict of an authorizer, now or later. An authorizer that decides from memory (RBAC, Node)
/// answers without an allocation, and a caller that cannot wait (a CEL expression) sees whether it
/// would have to.
pub enum Authorize<'a> {
    Ready(Verdict),
    /// Nothing has been sent yet: a webhook is called when this is polled.
    Pending(BoxFuture<'a, Verdict>),
}

impl<'a> Authorize<'a> {
    pub fn later(verdict: impl Future<Output = Verdict> + Send + 'a) -> Self {
        Self::Pending(Box::pin(verdict))
    }
}

impl From<Verdict> for Authorize<'_> {
    fn from(verdict: Verdict) -> Self {
        Self::Ready(verdict)
    }
}

impl Future for Authorize<'_> {
    type Output = Verdict;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Verdict> {
        match &mut *self {
            Self::Ready(verdict) => {
                // Polled again after it was ready, it denies: a future must not be polled then.
                let done = Verdict { decision: Decision::Deny, ..Verdict::no_opinion("") };
                Poll::Ready(std::mem::replace(verdict, done))
            }
            Self::Pending(verdict) => verdict.as_mut().poll(cx),
        }
    }
}

/// Everything that a user may do, as far as it can be listed: what `SelfSubjectRulesReview` shows.
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
