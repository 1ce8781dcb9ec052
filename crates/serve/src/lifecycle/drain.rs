//! The answers to requests that come while the server drains.

use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT, X_CONTENT_TYPE_OPTIONS},
};

use crate::{Body, health::text};

/// Probes and scrapes are answered to the end, and so are other API servers: they finish what they have
/// begun for a client. Shutdown does not wait for them.
pub(crate) fn is_exempt(path: &str, headers: &HeaderMap) -> bool {
    let agent = headers.get(USER_AGENT).map_or(&[][..], HeaderValue::as_bytes);
    EXEMPT.iter().any(|exempt| path.starts_with(exempt)) || agent.starts_with(b"kube-apiserver/")
}

const EXEMPT: [&str; 4] = ["/readyz", "/livez", "/healthz", "/metrics"];

/// Sends the client to another server: with `--shutdown-send-retry-after` in 5 seconds, else at once.
pub(crate) fn refusal(send_retry_after: bool, http2: bool) -> Response<Body> {
    let mut response = if send_retry_after {
        let why = "The apiserver is shutting down, please try again later.\n";
        let mut response = text(StatusCode::TOO_MANY_REQUESTS, why);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
        response
    } else {
        let mut response = Response::new(Body::full(SHUTTING_DOWN));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    };
    // HTTP/2 has no such header: its clients get a GOAWAY.
    if !http2 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

const SHUTTING_DOWN: &str = "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\
    \"status\":\"Failure\",\"message\":\"apiserver is shutting down\",\
    \"reason\":\"ServiceUnavailable\",\"code\":503}\n\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_and_api_servers_are_exempt() {
        let cases = [
            ("/livez", "", true),
            ("/readyz/shutdown", "curl/8", true),
            ("/metrics", "", true),
            ("/api/v1/pods", "kubectl/v1.36", false),
            ("/api/v1/pods", "kube-apiserver/v1.36.4 (linux/amd64)", true),
            ("/version", "my kube-apiserver/", false),
        ];
        for (path, agent, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(USER_AGENT, HeaderValue::from_static(agent));
            assert_eq!(is_exempt(path, &headers), expected, "{path} of {agent}");
        }
    }

    #[test]
    fn clients_are_told_when_to_try_again() {
        let cases = [(true, false, 429, "5", true), (false, true, 503, "1", false)];
        for (send_retry_after, http2, code, retry, close) in cases {
            let response = refusal(send_retry_after, http2);
            assert_eq!(response.status().as_u16(), code);
            assert_eq!(response.headers()[RETRY_AFTER], retry);
            assert_eq!(response.headers().contains_key(CONNECTION), close);
        }
    }
}
