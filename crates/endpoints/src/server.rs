//! A link of the delegation chain that serves resources.

use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;
use serve::{Context, Delegate, Serving};

use crate::Resources;

/// The built-in kinds, or the custom ones.
pub struct ResourceServer {
    pub name: &'static str,
    pub resources: Arc<Resources>,
}

impl Delegate for ResourceServer {
    fn name(&self) -> &'static str {
        self.name
    }

    fn serve<'a>(&'a self, cx: &'a mut Context, request: Request<Incoming>) -> Serving<'a> {
        Box::pin(self.resources.serve(cx, request))
    }

    /// Resources are not in the index; their group-versions are, by discovery.
    fn paths(&self) -> Vec<String> {
        Vec::new()
    }
}
