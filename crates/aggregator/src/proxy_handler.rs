//! Requests for remote group-versions, sent on to the servers that answer them: kube-aggregator's
//! `proxyHandler`.

use std::{sync::Arc, time::Duration};

use http::{
    HeaderName, HeaderValue, Request, Response, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
};
use hyper::body::Incoming;
use meta::{ApiError, GroupVersion};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use proxy::{Options, Target, forward, is_upgrade};
use serve::{Body, Claims, Context, Delegate, Serving};
use tokio::time::Instant;

use crate::{Registration, remote_server::RemoteServer, user_headers::user_headers};

/// Answers for all remote group-versions.
pub struct ProxyHandler(pub Arc<Registration>);

impl ProxyHandler {
    pub const NAME: &'static str = "kube-aggregator-proxy";

    /// None until APIServices are known.
    pub fn claims() -> Claims {
        Claims::default()
    }
}

impl Delegate for ProxyHandler {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn serve<'a>(&'a self, cx: &'a mut Context, request: Request<Incoming>) -> Serving<'a> {
        Box::pin(async move {
            let (group, version) = (cx.info.group.clone(), cx.info.version.clone());
            // It may have gone a moment ago.
            let server = self.0.find(&GroupVersion { group, version });
            let server = server.ok_or(ApiError::UnknownPath)?;
            server.proxy(cx, request).await
        })
    }
}

impl RemoteServer {
    /// Sends a request on.
    pub(crate) async fn proxy(
        &self,
        cx: &mut Context,
        mut request: Request<Incoming>,
    ) -> Result<Response<Body>, ApiError> {
        // Authorized as this group's, and read by the server as whatever is left when they are resolved.
        if cx.info.path.split('/').any(|part| matches!(part, "." | "..")) {
            return Err(ApiError::bad_request("the path has a segment . or .."));
        }
        let unavailable = || Ok(refusal(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE));
        if !self.api_service.available {
            return unavailable();
        }
        let internal = |why: &str| Ok(refusal(StatusCode::INTERNAL_SERVER_ERROR, why));
        let client = match &self.client {
            Ok(client) => client.clone(),
            Err(why) => return internal(why),
        };
        let address = match self.resolve().await {
            Ok(address) => address,
            Err(error) => {
                tracing::error!("error resolving {}: {error}", self.service);
                return unavailable();
            }
        };
        let mut headers = match user_headers(&cx.user) {
            Ok(headers) => headers,
            Err(why) => return internal(&why),
        };
        // The server audits under the same ID.
        if let Ok(id) = HeaderValue::from_str(&cx.audit.id) {
            headers.insert("audit-id", id);
        }
        remove_credentials(&mut request);
        let path = sent_path(&cx.info.path, request.uri().query());
        let url = self.url(&path).map_err(ApiError::bad_request)?;
        // Compat: discovery has to be fast, for clients read that of every server.
        let is_discovery =
            !cx.info.is_resource && cx.info.path.trim_matches('/').split('/').count() == 3;
        let options = Options {
            headers,
            client_address: Some(cx.peer.address.ip()),
            deadline: is_discovery.then(|| Instant::now() + DISCOVERY_TIMEOUT),
            redirects: self.settings.redirects,
            ..Options::default()
        };
        if cx.info.verb == "watch" || is_upgrade(&request) {
            // It waits for the other server from now on.
            cx.seat = None;
        }
        let target = Target { client, url, connect_to: Some(address) };
        Ok(forward(request, target, options)
            .await
            .unwrap_or_else(|error| refusal(StatusCode::SERVICE_UNAVAILABLE, &error.to_string())))
    }
}

const UNAVAILABLE: &str = "service unavailable";
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Authentication and impersonation have taken them out; a spelling that they do not know must not become
/// an identity at the next server.
pub(crate) fn remove_credentials(request: &mut Request<Incoming>) {
    let is_one = |name: &&HeaderName| {
        let dashed = name.as_str().replace('_', "-");
        dashed == AUTHORIZATION.as_str()
            || dashed.starts_with("x-remote-")
            || dashed.starts_with("impersonate-")
    };
    let found: Vec<HeaderName> = request.headers().keys().filter(is_one).cloned().collect();
    for name in found {
        request.headers_mut().remove(name);
    }
}

/// The path that was authorized, encoded anew, so that nothing in it can be read in another way; and the
/// query as it came.
pub(crate) fn sent_path(decoded: &str, query: Option<&str>) -> String {
    let path = utf8_percent_encode(decoded, PATH);
    match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_string(),
    }
}

/// Compat: what Go's `URL.EscapedPath` escapes.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

/// Compat: kube-aggregator answers in plain text.
pub(crate) fn refusal(code: StatusCode, why: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{why}\n")));
    *response.status_mut() = code;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_that_was_authorized_is_sent() {
        let cases = [
            ("/apis/g/v1/x", None, "/apis/g/v1/x"),
            ("/apis/g/v1/x", Some("watch=1&a=%2f"), "/apis/g/v1/x?watch=1&a=%2f"),
            // `%2f` was a slash to the authorizer, so it is one to the server.
            ("/apis/g/v1/a/b", None, "/apis/g/v1/a/b"),
            ("/apis/g/v1/a b%?#\u{0}", None, "/apis/g/v1/a%20b%25%3F%23%00"),
            ("/apis/g/v1/x:y;z=@", None, "/apis/g/v1/x:y;z=@"),
        ];
        for (decoded, query, expected) in cases {
            assert_eq!(sent_path(decoded, query), expected);
        }
    }
}
