//! An aggregated API server on loopback: discovery of one resource, a small object, and a gigabyte. It has a
//! thread of its own and does as little as possible.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::{convert::Infallible, net::Ipv4Addr};

use anyhow::Result;
use bytes::Bytes;
use http::{Request, Response, header::CONTENT_TYPE};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;

use crate::tls_server::TlsServer;

/// What `/stream` below the group-version sends.
pub(crate) const STREAM_BYTES: u64 = 1 << 30;
const PIECE_BYTES: usize = 64 << 10;

/// For the Service `name` of the cluster. Answers until it is dropped.
pub(crate) fn start(name: &str, group: &'static str) -> Result<TlsServer> {
    let alpn = ["h2", "http/1.1"];
    TlsServer::start(Ipv4Addr::LOCALHOST.into(), &[name], &alpn, move |stream| async move {
        let service = service_fn(move |request| std::future::ready(answer(&request, group)));
        let builder = auto::Builder::new(TokioExecutor::new());
        drop(builder.serve_connection(TokioIo::new(stream), service).await);
    })
}

fn answer(
    request: &Request<Incoming>,
    group: &'static str,
) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, Infallible> {
    let path = request.uri().path();
    let (code, body) = if path == format!("/apis/{group}/v1") {
        let list = format!(
            r#"{{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"{group}/v1","resources":[{{"name":"flunders","singularName":"flunder","namespaced":true,"kind":"Flunder","verbs":["get","list"]}}]}}"#
        );
        (200, Full::new(Bytes::from(list)).boxed_unsync())
    } else if path.ends_with("/stream") {
        (200, Stream { left: STREAM_BYTES, piece: vec![b'x'; PIECE_BYTES].into() }.boxed_unsync())
    } else if path.starts_with(&format!("/apis/{group}/v1/")) {
        let object = Bytes::from_static(
            br#"{"apiVersion":"v1","kind":"Flunder","metadata":{"name":"one","resourceVersion":"1"}}"#,
        );
        (200, Full::new(object).boxed_unsync())
    } else {
        (404, Full::new(Bytes::from_static(b"404 page not found\n")).boxed_unsync())
    };
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).expect("a valid code");
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    Ok(response)
}

/// The same piece, again and again.
struct Stream {
    left: u64,
    piece: Bytes,
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let bytes = self.left.min(self.piece.len() as u64);
        self.left -= bytes;
        let piece = self.piece.slice(..usize::try_from(bytes).expect("no more than a piece"));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}
