//! What writing an object takes beyond the right to write objects of its kind, where the object itself
//! decides: a role must not grant more than its writer holds.

use admission::BoxFuture;
use meta::{ApiError, RequestInfo, User, Value};

/// Asked after admission has changed the object and before it is validated.
pub trait WriteAuthorizer: Send + Sync + 'static {
    fn check<'a>(&'a self, write: &'a WriteRequest<'a>) -> BoxFuture<'a, Result<(), ApiError>>;
}

/// A write that has to be authorized by its object.
pub struct WriteRequest<'a> {
    pub user: &'a User,
    pub info: &'a RequestInfo,
    /// As it is to be.
    pub object: &'a Value,
    /// As it is; None: it is new.
    pub old: Option<&'a Value>,
}
