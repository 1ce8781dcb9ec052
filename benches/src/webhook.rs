//! An admission webhook on loopback that allows everything. It has a thread of its own and does as little as
//! possible: what it costs is part of the figures, on both servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{convert::Infallible, net::Ipv4Addr};

use anyhow::Result;
use bytes::Bytes;
use http::{Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Value, json};

use crate::tls_server::TlsServer;

/// Answers until it is dropped.
pub(crate) struct Webhook {
    server: TlsServer,
    calls: Arc<AtomicUsize>,
}

impl Webhook {
    pub(crate) fn start() -> Result<Self> {
        let calls = Arc::new(AtomicUsize::new(0));
        let (counted, alpn) = (calls.clone(), ["h2", "http/1.1"]);
        let serve = move |stream| {
            let calls = counted.clone();
            async move {
                let service = service_fn(move |request| answer(request, calls.clone()));
                let builder = auto::Builder::new(TokioExecutor::new());
                drop(builder.serve_connection(TokioIo::new(stream), service).await);
            }
        };
        let server = TlsServer::start(Ipv4Addr::LOCALHOST.into(), &[], &alpn, serve)?;
        Ok(Self { server, calls })
    }

    /// For a webhook configuration.
    pub(crate) fn client_config(&self) -> Value {
        let TlsServer { address, ca_bundle, .. } = &self.server;
        json!({"url": format!("https://{address}/allow"), "caBundle": ca_bundle})
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

async fn answer(
    request: Request<Incoming>,
    calls: Arc<AtomicUsize>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
    calls.fetch_add(1, Ordering::Relaxed);
    let uid = uid(&body.unwrap_or_default()).unwrap_or_default();
    let review = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{{"uid":"{uid}","allowed":true}}}}"#
    );
    let mut response = Response::new(Full::from(review));
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    Ok(response)
}

/// The first `uid` is that of the review; the body is not parsed.
fn uid(review: &[u8]) -> Option<String> {
    const MARKER: &[u8] = b"\"uid\":\"";
    let begin = memchr::memmem::find(review, MARKER)? + MARKER.len();
    let end = begin + memchr::memchr(b'"', &review[begin..])?;
    String::from_utf8(review[begin..end].to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_is_answered_under_its_uid() {
        let review = br#"{"kind":"AdmissionReview","request":{"uid":"a-b","object":{"metadata":{"uid":"c"}}}}"#;
        assert_eq!(uid(review).as_deref(), Some("a-b"));
        assert_eq!(uid(b"{}"), None);
    }
}
