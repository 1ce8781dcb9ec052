//! port-forward over a WebSocket: the bytes of a SPDY connection, in binary messages. They are not looked
//! at. kube-apiserver's `TunnelingHandler`.

use std::{num::NonZeroU64, time::Duration};

use client::{Client, ResponseBody, SendOptions, empty_body};
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{CONNECTION, CONTENT_TYPE, UPGRADE},
};
use hyper::{body::Incoming, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use meta::ApiError;
use proxy::RateLimit;
use serve::{Body, websocket};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use crate::{
    errors::dial_error,
    message_stream::{self, ClientReader, ClientWriter},
    metrics::Metrics,
};

const PREFIX: &str = "SPDY/3.1+";
const SUFFIX: &str = ".k8s.io";
const VERSION_HEADER: &str = "x-stream-protocol-version";
/// At a time from the kubelet: one message.
const MESSAGE_BYTES: usize = 32 * 1024;
/// For what is still on its way when one side has ended.
const LINGER: Duration = Duration::from_secs(5);
/// Of the protocols that a client offers.
const PROTOCOLS_MAX: usize = 16;

/// The SPDY protocols that a client wants to tunnel; none: it wants none.
pub(crate) fn protocols(headers: &HeaderMap) -> Vec<HeaderValue> {
    let offered = websocket::offered_protocols(headers);
    let tunneled = offered.filter(|name| name.ends_with(SUFFIX));
    let tunneled = tunneled.filter_map(|name| name.strip_prefix(PREFIX));
    tunneled.filter_map(|name| HeaderValue::from_str(name).ok()).take(PROTOCOLS_MAX).collect()
}

/// The kubelet's side.
pub(crate) struct Backend {
    pub(crate) client: Client,
    pub(crate) url: Uri,
    pub(crate) bytes_per_second_max: Option<NonZeroU64>,
}

pub(crate) async fn serve(
    mut request: Request<Incoming>,
    backend: Backend,
    metrics: &Metrics,
) -> Result<Response<Body>, ApiError> {
    let mut asked = Request::new(empty_body());
    *asked.method_mut() = Method::POST;
    *asked.uri_mut() = backend.url;
    let headers = asked.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(spdy::UPGRADE));
    for protocol in protocols(request.headers()) {
        headers.append(VERSION_HEADER, protocol);
    }
    let options = SendOptions { dedicated: true, ..SendOptions::default() };
    let mut answer = match backend.client.send(asked, options).await {
        Ok(answer) => answer,
        Err(error) => {
            metrics.tunneled(StatusCode::INTERNAL_SERVER_ERROR.as_u16());
            return Err(dial_error(error));
        }
    };
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        metrics.tunneled(answer.status().as_u16());
        return not_upgraded(answer);
    }
    if !is_spdy(answer.headers()) {
        metrics.tunneled(StatusCode::INTERNAL_SERVER_ERROR.as_u16());
        let message = "unable to upgrade: missing upgrade headers in response";
        return Err(ApiError::Storage(message.to_owned()));
    }
    let chosen = answer.headers().get(VERSION_HEADER).and_then(|value| value.to_str().ok());
    let chosen = chosen.map(|chosen| format!("{PREFIX}{}", chosen.trim()));
    let accepted = websocket::accept_messages(&mut request, chosen.as_deref());
    let (connection, response) = match accepted {
        Ok(accepted) => accepted,
        Err(refusal) => {
            metrics.tunneled(StatusCode::INTERNAL_SERVER_ERROR.as_u16());
            return Ok(refusal.into_response());
        }
    };
    metrics.tunneled(StatusCode::SWITCHING_PROTOCOLS.as_u16());
    let kubelet = hyper::upgrade::on(&mut answer);
    let rate = backend.bytes_per_second_max;
    let body = Body::take_over(connection, async move |client| match kubelet.await {
        Ok(kubelet) => copy(client, kubelet, rate).await,
        Err(error) => tracing::debug!(%error, "the kubelet's connection is gone"),
    });
    Ok(response.map(|()| body))
}

/// Errors of the kubelet are the client's; anything else makes no sense, redirects above all.
fn not_upgraded(answer: Response<ResponseBody>) -> Result<Response<Body>, ApiError> {
    let code = answer.status();
    if !code.is_client_error() && !code.is_server_error() {
        let message = format!("invalid upgrade response: status code {}", code.as_u16());
        return Err(ApiError::Storage(message));
    }
    let (head, body) = answer.into_parts();
    let mut response = Response::new(Body::foreign(body));
    *response.status_mut() = code;
    if let Some(kind) = head.headers.get(CONTENT_TYPE) {
        response.headers_mut().insert(CONTENT_TYPE, kind.clone());
    }
    // The client may have sent messages already.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(response)
}

fn is_spdy(headers: &HeaderMap) -> bool {
    let has = |name, value: &str| {
        let header: Option<&HeaderValue> = headers.get(name);
        let header = header.and_then(|header| header.to_str().ok()).unwrap_or_default();
        header.to_ascii_lowercase().contains(value)
    };
    has(CONNECTION, "upgrade") && has(UPGRADE, "spdy/3.1")
}

async fn copy(client: Upgraded, kubelet: Upgraded, rate: Option<NonZeroU64>) {
    let (from_client, to_client) = message_stream::split(TokioIo::new(client));
    let (from_kubelet, to_kubelet) = tokio::io::split(TokioIo::new(kubelet));
    let mut requests = Box::pin(inward(from_client, &to_client, to_kubelet, rate));
    let mut responses = Box::pin(outward(from_kubelet, &to_client, rate));
    tokio::select! {
        () = &mut requests => { let _ = timeout(LINGER, responses).await; }
        () = &mut responses => {}
    }
    let _ = timeout(LINGER, to_client.close_normally()).await;
}

async fn inward(
    mut from_client: ClientReader,
    to_client: &ClientWriter,
    mut to_kubelet: impl tokio::io::AsyncWrite + Unpin,
    rate: Option<NonZeroU64>,
) {
    let mut pace = rate.map(RateLimit::new);
    loop {
        let piece = match from_client.next(to_client).await {
            Ok(Some(piece)) if piece.binary => piece,
            Ok(Some(_)) => {
                tracing::debug!("a client sent a text message through a tunnel");
                break;
            }
            Ok(None) => break,
            Err(error) => {
                tracing::debug!(%error, "a client's WebSocket ended");
                break;
            }
        };
        let written = async {
            to_kubelet.write_all(&piece.bytes).await?;
            to_kubelet.flush().await
        };
        match to_client.while_there(written).await {
            Some(Ok(())) => {}
            // The kubelet's side has ended, and the other half knows it.
            Some(Err(_)) => return,
            None => break,
        }
        if let Some(pace) = &mut pace {
            pace.wait(piece.bytes.len()).await;
        }
    }
    let _ = to_kubelet.shutdown().await;
}

async fn outward(
    mut from_kubelet: impl tokio::io::AsyncRead + Unpin,
    to_client: &ClientWriter,
    rate: Option<NonZeroU64>,
) {
    let mut pace = rate.map(RateLimit::new);
    let mut buffer = vec![0; MESSAGE_BYTES];
    loop {
        let length = pace.as_ref().map_or(MESSAGE_BYTES, |pace| pace.chunk_bytes);
        let count = match from_kubelet.read(&mut buffer[..length.min(MESSAGE_BYTES)]).await {
            Ok(0) | Err(_) => return,
            Ok(count) => count,
        };
        if to_client.send(&buffer[..count]).await.is_err() {
            return;
        }
        if let Some(pace) = &mut pace {
            pace.wait(count).await;
        }
    }
}
