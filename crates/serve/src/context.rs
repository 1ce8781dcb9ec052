//! What is known about a request while it is handled.

use std::{any::Any, sync::Arc, time::Instant};

use meta::{RequestInfo, User, Warnings};

use crate::connection::Peer;

/// One request's companion through the chain.
pub struct Context {
    pub info: RequestInfo,
    /// Who the request acts as.
    pub user: User,
    /// `Audit-Id`: given by the client or made here, sent back on every answer.
    pub audit_id: String,
    pub warnings: Arc<Warnings>,
    pub received: Instant,
    /// None for long-running requests.
    pub deadline: Option<tokio::time::Instant>,
    pub peer: Arc<Peer>,
    /// Whether browsers are told not to guess what a refusal is.
    pub(crate) no_sniff: bool,
    /// Released when the response body has been sent.
    held: Vec<Box<dyn Any + Send + Sync>>,
}

impl Context {
    pub fn new(peer: Arc<Peer>) -> Self {
        Self {
            info: RequestInfo::default(),
            user: User::default(),
            audit_id: String::new(),
            warnings: Arc::default(),
            received: Instant::now(),
            deadline: None,
            peer,
            no_sniff: false,
            held: Vec::new(),
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
