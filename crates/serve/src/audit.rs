//! The audit event of a request.

use std::sync::Arc;

use meta::AuditAnnotations;

/// Filled in while the request walks down the chain; who asked for what is in the request's
/// [`crate::Context`].
#[derive(Debug, Default)]
pub struct AuditEvent {
    /// `Audit-Id`: given by the client or made here, sent back on every answer.
    pub id: String,
    pub annotations: Arc<AuditAnnotations>,
}
