//! The server as a client of itself, for objects that follow from others.

use meta::{ApiError, GroupVersionResource, Value};
use registry::Pinned;

/// Given once the server is put together; acts as the server itself.
pub trait Client: Send + Sync + 'static {
    fn create<'a>(
        &'a self,
        gvr: GroupVersionResource,
        namespace: &'a str,
        object: &'a Value,
    ) -> Pinned<'a, Result<(), ApiError>>;

    fn delete<'a>(
        &'a self,
        gvr: GroupVersionResource,
        namespace: &'a str,
        name: &'a str,
    ) -> Pinned<'a, Result<(), ApiError>>;
}
