//! The servers behind the chain, each asked in turn: aggregator, built-in kinds, custom kinds, 404.

use std::{future::Future, pin::Pin};

use http::{Request, Response};
use hyper::body::Incoming;
use meta::ApiError;

use crate::{Body, context::Context, health::Check};

/// One of the servers. What it doesn't know falls through to the next.
pub trait Delegate: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    fn serve<'a>(&'a self, cx: &'a mut Context, request: Request<Incoming>) -> Serving<'a>;

    /// The paths that this server answers, for the index.
    fn paths(&self) -> Vec<String>;

    /// Shown by `/healthz`, `/livez` and `/readyz`.
    fn checks(&self) -> Vec<Check> {
        Vec::new()
    }
}

pub type Serving<'a> = Pin<Box<dyn Future<Output = Served> + Send + 'a>>;

/// What a server makes of a request.
pub enum Served {
    Answered(Result<Response<Body>, ApiError>),
    /// Not mine: the request goes on to the next server.
    Next(Request<Incoming>),
}

/// The chain of servers.
pub struct Delegates(pub Vec<std::sync::Arc<dyn Delegate>>);

impl Delegates {
    pub(crate) async fn serve(
        &self,
        cx: &mut Context,
        mut request: Request<Incoming>,
    ) -> Result<Response<Body>, ApiError> {
        for delegate in &self.0 {
            match delegate.serve(cx, request).await {
                Served::Answered(answer) => return answer,
                Served::Next(unanswered) => request = unanswered,
            }
        }
        Err(ApiError::UnknownPath)
    }

    pub fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = self.0.iter().flat_map(|delegate| delegate.paths()).collect();
        paths.sort();
        paths.dedup();
        paths
    }
}
