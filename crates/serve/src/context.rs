//! What is known about a request while it is handled.

use std::{
    any::Any,
    sync::Arc,
    time::{Duration, Instant},
};

use auth::authn::TokenNotes;
use flowcontrol::FlowSchema;
use meta::{RequestInfo, User, Warnings};

use trace::Span;

use crate::{
    audit::RequestAudit,
    connection::Peer,
    filters::{latency::Filter, seats::Seat},
};

/// One request's companion through the chain.
pub struct Context {
    pub info: RequestInfo,
    /// The user that the request acts as.
    pub user: User,
    /// The user that sent it, where that is another one (impersonation).
    pub authenticated_user: Option<User>,
    pub audit: RequestAudit,
    /// Of the whole request, until its answer is sent.
    pub span: Span,
    pub warnings: Arc<Warnings>,
    pub received: Instant,
    /// The request's place in flow control, held until the answer is ready to be sent. A handler may
    /// drop it earlier, when what is left costs the server nothing.
    pub seat: Option<Seat>,
    /// The flow schema that the request was classified by.
    pub flow_schema: Option<Arc<FlowSchema>>,
    /// Not the server's fault, so not part of its service level.
    pub waited_for_seat: Duration,
    /// None for long-running requests.
    pub deadline: Option<tokio::time::Instant>,
    pub peer: Arc<Peer>,
    /// Whether the resource and verb are served, and the user is allowed to use them: the names are
    /// labels of metrics then.
    pub(crate) served: bool,
    /// Whether a refusal has `X-Content-Type-Options: nosniff`.
    pub(crate) no_sniff: bool,
    /// Those that took longer than the log is silent about.
    pub(crate) slow_filters: Vec<(Filter, Duration)>,
    /// Released when the response body has been sent.
    held: Vec<Box<dyn Any + Send + Sync>>,
}

impl Context {
    pub fn new(peer: Arc<Peer>) -> Self {
        Self {
            info: RequestInfo::default(),
            user: User::default(),
            authenticated_user: None,
            audit: RequestAudit::default(),
            span: Span::default(),
            warnings: Arc::default(),
            received: Instant::now(),
            seat: None,
            flow_schema: None,
            waited_for_seat: Duration::ZERO,
            deadline: None,
            peer,
            served: false,
            no_sniff: false,
            slow_filters: Vec::new(),
            held: Vec::new(),
        }
    }

    /// The user that sent the request.
    pub fn authenticated_user(&self) -> &User {
        self.authenticated_user.as_ref().unwrap_or(&self.user)
    }

    /// Records what authentication has said about the token.
    pub(crate) fn note(&self, notes: TokenNotes) {
        for (key, value) in notes.annotations {
            self.audit.record.annotations.add(key, value);
        }
        for warning in notes.warnings {
            self.warnings.add(warning);
        }
    }

    /// Keeps a guard until the answer's last byte is out, so that streams count as well.
    pub fn hold(&mut self, guard: impl Any + Send + Sync) {
        self.held.push(Box::new(guard));
    }

    pub(crate) fn take_held(&mut self) -> Vec<Box<dyn Any + Send + Sync>> {
        std::mem::take(&mut self.held)
    }
}
