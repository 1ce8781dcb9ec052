//! An admission webhook on loopback that allows everything. It has a thread of its own and does as little as
//! possible: what it costs is part of the figures, on both servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{convert::Infallible, net::SocketAddr};

use anyhow::{Context as _, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

/// Answers until it is dropped.
pub(crate) struct Webhook {
    address: SocketAddr,
    ca_bundle: String,
    calls: Arc<AtomicUsize>,
    /// Ends the thread when it is dropped.
    _running: oneshot::Sender<()>,
}

impl Webhook {
    pub(crate) fn start() -> Result<Self> {
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let ca_bundle = STANDARD.encode(own.cert.pem());
        let key = PrivateKeyDer::Pkcs8(own.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("starting the webhook")?;
        let (running, stopped) = oneshot::channel();
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        std::thread::spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    // A listener that fails shows as calls that fail.
                    _ = accept(listener, acceptor, counted) => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Self { address, ca_bundle, calls, _running: running })
    }

    /// For a webhook configuration.
    pub(crate) fn client_config(&self) -> Value {
        json!({"url": format!("https://{}/allow", self.address), "caBundle": self.ca_bundle})
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

async fn accept(
    listener: std::net::TcpListener,
    acceptor: TlsAcceptor,
    calls: Arc<AtomicUsize>,
) -> Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (acceptor, calls) = (acceptor.clone(), calls.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(move |request| answer(request, calls.clone()));
            let builder = auto::Builder::new(TokioExecutor::new());
            // A connection that breaks off shows as a call that fails.
            drop(builder.serve_connection(TokioIo::new(stream), service).await);
        });
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
