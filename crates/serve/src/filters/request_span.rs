//! The span of a request, with the names and attributes that kube-apiserver's have.

use http::{HeaderMap, Request, StatusCode, Version, header::USER_AGENT};
use meta::{RequestInfo, User};
use trace::{Propagated, Span, Tracer};

use crate::{audit::request_uri, context::Context};

/// Starts the span, after authentication: only administrators and monitoring systems decide by their
/// headers what is recorded.
pub(crate) fn request_span<B>(tracer: Option<&Tracer>, cx: &Context, request: &Request<B>) -> Span {
    let propagated = Propagated::extract(request.headers());
    if tracer.is_none() && propagated.is_none() {
        return Span::default();
    }
    let trusted = cx.user.is_in(User::MASTERS) || cx.user.is_in(MONITORING);
    let name = || span_name(request.method().as_str(), &cx.info);
    let mut span = Span::of_request(tracer, propagated, trusted, cx.received, name);
    if span.is_recorded() {
        describe(&mut span, cx, request);
    }
    span
}

const MONITORING: &str = "system:monitoring";

/// Without the names that clients give, so that the spans of one kind of request have one name.
fn span_name(method: &str, info: &RequestInfo) -> String {
    if !info.is_resource {
        return method.to_owned();
    }
    let mut name = format!("{method} /{}", info.prefix);
    let mut part = |part: &str| {
        if !part.is_empty() {
            name.push('/');
            name.push_str(part);
        }
    };
    part(&info.group);
    part(&info.version);
    part(if info.namespace.is_empty() { "" } else { "namespaces/{:namespace}" });
    part(&info.resource);
    part(if info.name.is_empty() { "" } else { "{:name}" });
    part(&info.subresource);
    name
}

fn describe<B>(span: &mut Span, cx: &Context, request: &Request<B>) {
    let host = request.uri().authority().map(|authority| authority.as_str().to_owned());
    let host = host.or_else(|| Some(text(request.headers(), "host")?.to_owned()));
    let host = host.unwrap_or_default();
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port.parse::<u16>().ok()),
        _ => (host.as_str(), None),
    };
    span.attribute("server.address", name.trim_matches(['[', ']']));
    if let Some(port) = port.filter(|port| *port != 443) {
        span.attribute("server.port", i64::from(port));
    }
    span.attribute("http.request.method", request.method().as_str());
    span.attribute("url.scheme", if cx.peer.tls.is_some() { "https" } else { "http" });
    span.attribute("network.peer.address", cx.peer.address.ip().to_string());
    span.attribute("network.peer.port", i64::from(cx.peer.address.port()));
    if let Some(agent) = text(request.headers(), USER_AGENT.as_str()) {
        span.attribute("user_agent.original", agent);
    }
    span.attribute("client.address", cx.peer.address.ip().to_string());
    span.attribute("url.path", cx.info.path.as_str());
    span.attribute(
        "network.protocol.version",
        match request.version() {
            Version::HTTP_2 => "2",
            Version::HTTP_10 => "1.0",
            _ => "1.1",
        },
    );
    span.attribute("http.target", request_uri(request.uri()));
    span.attribute("audit-id", cx.audit.id.as_str());
}

/// What the answer adds.
pub(crate) fn answered(span: &mut Span, code: StatusCode) {
    if !span.is_recorded() {
        return;
    }
    span.attribute("http.response.status_code", i64::from(code.as_u16()));
    if code.is_server_error() {
        span.error("");
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::request_info::request_info;

    #[test]
    fn spans_are_named_after_the_kind_of_request() {
        let cases = [
            ("GET", "/version", "GET"),
            ("GET", "/api/v1/pods", "GET /api/v1/pods"),
            ("POST", "/api/v1/namespaces/ns/pods", "POST /api/v1/namespaces/{:namespace}/pods"),
            (
                "PUT",
                "/apis/apps/v1/namespaces/ns/deployments/web/scale",
                "PUT /apis/apps/v1/namespaces/{:namespace}/deployments/{:name}/scale",
            ),
            ("GET", "/api/v1/nodes/n1", "GET /api/v1/nodes/{:name}"),
        ];
        for (method, path, expected) in cases {
            let uri = path.parse().expect("a path");
            let info = request_info(&method.parse().expect("a method"), &uri).expect("a request");
            assert_eq!(span_name(method, &info), expected);
        }
    }
}
