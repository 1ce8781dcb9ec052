//! The server as a client of itself, for objects that follow from others.

use meta::{ApiError, GroupVersionResource, Value};
use registry::BoxFuture;

/// Given once the server is put together; acts as the server itself.
pub trait Client: Send + Sync + 'static {
    fn create<'a>(
        &'a self,
        gvr: GroupVersionResource,
        namespace: &'a str,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<(), ApiError>>;

    fn delete<'a>(
        &'a self,
        gvr: GroupVersionResource,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<(), ApiError>>;
}
