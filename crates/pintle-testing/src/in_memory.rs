//! The transport of a client in the same process: each request has a connection of its own, in memory.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use pintle::HostedServer;
use tower_service::Service;

/// Requests go to the server while it is there: clients do not keep it alive.
pub(crate) struct InMemory(Weak<HostedServer>);

impl InMemory {
    pub(crate) fn new(server: &Arc<HostedServer>) -> Self {
        Self(Arc::downgrade(server))
    }
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransportError {
    #[error("the server was dropped")]
    Gone,
    #[error(transparent)]
    Http(#[from] hyper::Error),
}

impl Service<Request<Body>> for InMemory {
    type Response = Response<Incoming>;
    type Error = TransportError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // Connected before the future is polled, so that it does not hold the server.
        let stream = self.0.upgrade().map(|server| server.connect());
        Box::pin(async move {
            let stream = TokioIo::new(stream.ok_or(TransportError::Gone)?);
            let (mut sender, connection) = http1::handshake(stream).await?;
            // Lives as long as the response's body, or as the protocol that the connection changes to.
            tokio::spawn(connection.with_upgrades());
            request.headers_mut().insert(HOST, HeaderValue::from_static("pintle.invalid"));
            if let Some(path) = request.uri().path_and_query() {
                *request.uri_mut() = Uri::from(path.clone());
            }
            Ok(sender.send_request(request).await?)
        })
    }
}
