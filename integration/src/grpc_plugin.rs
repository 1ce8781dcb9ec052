//! A gRPC service on a Unix socket, as plugins of an API server are: unary calls by their path.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixListener;
use tokio::task::{AbortHandle, JoinSet};

use crate::http::runtime;

/// It answers until it is dropped.
pub(crate) struct GrpcPlugin {
    socket: PathBuf,
    server: AbortHandle,
}

/// From the path of a method and a message to the answer, or why there is none.
type Method = dyn Fn(&str, &[u8]) -> Result<Vec<u8>, String> + Send + Sync;

impl GrpcPlugin {
    /// `socket` is a file, or begins with a NUL as the names of Linux do.
    pub(crate) fn start(
        socket: &Path,
        method: impl Fn(&str, &[u8]) -> Result<Vec<u8>, String> + Send + Sync + 'static,
    ) -> Self {
        let _inside = runtime().enter();
        let listener = UnixListener::bind(socket).expect("a socket");
        let server = runtime().spawn(serve(listener, Arc::new(method))).abort_handle();
        Self { socket: socket.to_owned(), server }
    }
}

impl Drop for GrpcPlugin {
    fn drop(&mut self) {
        self.server.abort();
        if self.socket.is_absolute() {
            // The directory may be gone already.
            let _ = fs::remove_file(&self.socket);
        }
    }
}

async fn serve(listener: UnixListener, method: Arc<Method>) {
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let method = method.clone();
        connections.spawn(async move {
            let answer = service_fn(move |request| answer(request, method.clone()));
            let server = http2::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(TokioIo::new(socket), answer).await;
        });
    }
}

type Body = BoxBody<Bytes, Infallible>;

async fn answer(
    request: Request<Incoming>,
    method: Arc<Method>,
) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
    // Behind the five bytes that say how long it is.
    let message = body.ok().and_then(|body| body.get(5..).map(<[u8]>::to_vec));
    let answer = match message {
        Some(message) => method(&path, &message),
        None => Err("there is no message".to_owned()),
    };
    let response = Response::builder().header("content-type", "application/grpc");
    let header = |text: &str| HeaderValue::from_str(text).expect("plain text");
    let response = match answer {
        Ok(message) => {
            let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
            let framed: Vec<u8> = [&[0][..], &length, &message].concat();
            let trailers =
                HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), header("0"))]);
            let body = Full::new(Bytes::from(framed));
            response.body(body.with_trailers(std::future::ready(Some(Ok(trailers)))).boxed())
        }
        Err(why) => response
            .header("grpc-status", "2")
            .header("grpc-message", header(&why))
            .body(Empty::new().boxed()),
    };
    Ok(response.expect("a plain response"))
}
