//! What writing an object takes beyond the right to write objects of its kind: nobody hands out rights
//! that he doesn't have.

use admission::Pinned;
use meta::{ApiError, RequestInfo, User, Value};

/// Asked after admission has changed the object and before it is validated.
pub trait WriteAuthorizer: Send + Sync + 'static {
    fn check<'a>(&'a self, write: &'a WriteRequest<'a>) -> Pinned<'a, Result<(), ApiError>>;
}

/// A write that needs a permit.
pub struct WriteRequest<'a> {
    pub user: &'a User,
    pub info: &'a RequestInfo,
    /// As it is to be.
    pub object: &'a Value,
    /// As it is; None: it is new.
    pub old: Option<&'a Value>,
}

/// Who decides about rights. What follows from a request may need more of them than the request did.
pub trait Judge: Send + Sync + 'static {
    /// Err: this user may not do this.
    fn check(&self, user: &User, info: &RequestInfo) -> Result<(), ApiError>;
}
