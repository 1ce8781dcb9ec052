//! One request to the backend, one response back.

use std::{net::IpAddr, num::NonZeroU64};

use client::{Client, HostPort, SendOptions};
use http::{
    HeaderMap, HeaderValue, Request, Response, StatusCode, Uri,
    header::{CONTENT_TYPE, LOCATION},
};
use hyper::body::Incoming;
use serve::Body;
use tokio::time::Instant;

use crate::{
    Error,
    headers::{prepare_request, prepare_response},
    request_body::streamed,
    upgrade::{self, is_upgrade},
};

/// Where a request goes.
#[derive(Clone)]
pub struct Target {
    /// Its TLS settings and its way to dial are those of the target. Build it with
    /// [`client::Limits::for_proxy`].
    pub client: Client,
    /// Scheme, authority, path and query. The authority is what `Host` says and, unless the client has
    /// a name for it, the name that the certificate must have.
    pub url: Uri,
    /// What to connect to instead of the URL's host.
    pub connect_to: Option<HostPort>,
}

#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Set last, in place of what the client sent under the same names.
    pub headers: HeaderMap,
    /// For `X-Forwarded-For`: the address of `Context::peer`.
    pub client_address: Option<IpAddr>,
    /// Until the head of the response is there.
    pub deadline: Option<Instant>,
    pub redirects: Redirects,
    /// Requests that are no upgrade are refused.
    pub upgrade_required: bool,
    /// `--max-connection-bytes-per-sec`, each way of an upgraded connection.
    pub bytes_per_second_max: Option<NonZeroU64>,
}

/// What becomes of a response that sends the client elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redirects {
    /// 502: the client would repeat its request, with its credentials, at a place of the backend's choice.
    #[default]
    Refuse,
    Pass,
}

/// Sends a request on, and returns the response as soon as its head is there. Dropping the future, or
/// the response, abandons the request at the backend too.
pub async fn forward(
    mut request: Request<Incoming>,
    target: Target,
    options: Options,
) -> Result<Response<Body>, Error> {
    let upgrade = is_upgrade(&request).then(|| upgrade::UpgradeRequest::take(&mut request));
    if upgrade.is_none() && options.upgrade_required {
        return Err(Error::UpgradeRequired);
    }
    let Options { headers, client_address, deadline, redirects, bytes_per_second_max, .. } =
        options;
    let Target { client, url, connect_to } = target;
    let (mut head, body) = request.into_parts();
    prepare_request(&mut head.headers, &head.uri, client_address, &headers);
    let (body, guard) = streamed(body);
    let mut sent = Request::new(body);
    *sent.method_mut() = head.method;
    *sent.uri_mut() = url;
    *sent.headers_mut() = head.headers;
    let dedicated = upgrade.is_some();
    let send = SendOptions { connect_to, deadline, dedicated };
    if let Some(asked) = upgrade {
        asked.add_headers(sent.headers_mut());
        let response = client.send(sent, send).await.map_err(Error::Dial)?;
        return upgrade::answer(asked, response, guard, bytes_per_second_max);
    }
    let response = client.send(sent, send).await.map_err(Error::Unreachable)?;
    // Nothing was to be upgraded: what follows would be bytes of the backend's choice.
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Error::InvalidUpgradeResponse(response.status().as_u16()));
    }
    if redirects == Redirects::Refuse && is_redirect(&response) {
        return Ok(redirect_refused());
    }
    let (mut head, body) = response.into_parts();
    prepare_response(&mut head.headers);
    let mut body = Body::foreign(body);
    if let Some(guard) = guard {
        body.hold(guard);
    }
    // Only these: extensions of the backend's connection stay here.
    let mut passed = Response::new(body);
    *passed.status_mut() = head.status;
    *passed.headers_mut() = head.headers;
    Ok(passed)
}

fn is_redirect<B>(response: &Response<B>) -> bool {
    let location = response.headers().get(LOCATION);
    response.status().is_redirection() && location.is_some_and(|location| !location.is_empty())
}

fn redirect_refused() -> Response<Body> {
    let mut response = Response::new(Body::from(REDIRECT_REFUSED));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}

const REDIRECT_REFUSED: &str =
    "the backend attempted to redirect this request, which is not permitted";
