//! `pods/log`: what the kubelet has kept of a container's output, passed on as it comes.

use std::sync::Arc;

use client::{SendOptions, empty_body, generic_message, go_text, url_error};
use codec::negotiate::{self, NegotiateError, Offered};
use endpoints::{Connect, Connecter};
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{CONTENT_TYPE, LOCATION},
};
use meta::{
    ApiError, Details, GroupKind, Query, RequestInfo, Status, Value,
    field::{FieldErrors, FieldPath, path},
};
use serve::{Body, Serving};

use crate::{
    container,
    errors::refused_address,
    options::Builder,
    shared::{Shared, kubelet_url},
    translator::read_at_most,
};

pub(crate) struct Log(pub(crate) Arc<Shared>);

/// Of a kubelet's error. Compat: as much as kube-apiserver reads.
const ERROR_BYTES_MAX: usize = 50_000;

impl Connecter for Log {
    fn options(&self, query: &Query, _info: &RequestInfo) -> Result<Value, ApiError> {
        let options = Builder::new("PodLogOptions")
            .text("container", query)
            .flag("follow", query)
            .flag("previous", query)
            .integer("sinceSeconds", query)?
            .time("sinceTime", query)?
            .flag("timestamps", query)
            .integer("tailLines", query)?
            .integer("limitBytes", query)?
            .flag("insecureSkipTLSVerifyBackend", query)
            .optional_text("stream", query);
        Ok(options.build())
    }

    fn connect<'a>(&'a self, connect: Connect<'a>) -> Serving<'a> {
        Box::pin(self.serve(connect))
    }

    fn methods(&self) -> &'static [Method] {
        &[Method::GET]
    }

    /// Compat: before anything else of the request is looked at.
    fn negotiate(&self, accept: Option<&str>, offered: Offered) -> Result<(), ApiError> {
        negotiate::accept_log(accept, offered).map_err(|error| match error {
            NegotiateError::NotRepresentable(_) => ApiError::NotRepresentable(error.to_string()),
            _ => ApiError::NotAcceptable(error.to_string()),
        })
    }

    /// Compat: a read like any other.
    fn is_admitted(&self) -> bool {
        false
    }
}

impl Log {
    async fn serve(&self, connect: Connect<'_>) -> Result<Response<Body>, ApiError> {
        let info = &connect.cx.info;
        let mut options = connect.options;
        let insecure = is_set(&options, "insecureSkipTLSVerifyBackend");
        self.0.metrics.logs_requested(insecure);
        let split = self.0.gates.split_log_streams;
        if split && options.at(&["stream"]).is_none() {
            options.set_at(&["stream"], Value::from("All"));
        }
        validate(&options, &info.name, split)?;
        let pod = self.0.get("pods", &info.namespace, &info.name).await?;
        let container = container::choose(options.str_at(&["container"]), &pod)?;
        let node = pod.str_at(&["spec", "nodeName"]);
        if node.is_empty() {
            // There is nothing yet that could have written anything.
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            return Ok(response);
        }
        let kubelet = self.0.kubelet(node).await?;
        let query = kubelet_query(&options, split);
        let parts = ["containerLogs", &info.namespace, &info.name, container];
        let url = kubelet_url(&kubelet, &parts, &query)?;
        self.fetch(url, insecure, &info.name).await
    }

    async fn fetch(&self, url: Uri, insecure: bool, pod: &str) -> Result<Response<Body>, ApiError> {
        let kubelets = &self.0.kubelets;
        let client = if insecure { &kubelets.insecure } else { &kubelets.client };
        let failed = |why: &str| ApiError::Storage(url_error(&Method::GET, &url.to_string(), why));
        let mut request = Request::new(empty_body());
        *request.uri_mut() = url.clone();
        let response = match client.send(request, SendOptions::default()).await {
            Ok(response) => response,
            Err(error) => {
                if matches!(error, client::Error::Tls { .. }) {
                    self.0.metrics.logs_tls_failed();
                }
                return Err(refused_address(&error).unwrap_or_else(|| failed(&go_text(&error))));
            }
        };
        let code = response.status();
        if code.is_redirection() && response.headers().contains_key(LOCATION) {
            return Err(failed("redirects forbidden"));
        }
        if !(200..=206).contains(&code.as_u16()) {
            let said = read_at_most(response.into_body(), ERROR_BYTES_MAX).await;
            return Err(refused(code.as_u16(), pod, &String::from_utf8_lossy(&said)));
        }
        let mut streamed = Response::new(Body::foreign(response.into_body()));
        let text = HeaderValue::from_static("text/plain");
        streamed.headers_mut().insert(CONTENT_TYPE, text);
        Ok(streamed)
    }
}

fn is_set(options: &Value, field: &str) -> bool {
    options.at(&[field]).and_then(Value::as_bool) == Some(true)
}

/// In the words of kube-apiserver.
fn validate(options: &Value, pod: &str, split_streams: bool) -> Result<(), ApiError> {
    let mut errors = FieldErrors::default();
    let number = |name| options.i64_at(&[name]);
    if let Some(lines @ ..=-1) = number("tailLines") {
        errors.invalid(path("tailLines"), lines, "must be greater than or equal to 0");
    }
    if let Some(bytes @ ..=0) = number("limitBytes") {
        errors.invalid(path("limitBytes"), bytes, "must be greater than 0");
    }
    match (number("sinceSeconds"), options.at(&["sinceTime"])) {
        (Some(_), Some(_)) => errors.forbidden(
            FieldPath::root(),
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
        (Some(seconds @ ..=0), None) => {
            errors.invalid(path("sinceSeconds"), seconds, "must be greater than 0");
        }
        _ => {}
    }
    match options.at(&["stream"]).and_then(Value::as_str) {
        Some(_) if !split_streams => errors.forbidden(path("stream"), "may not be specified"),
        Some(stream) => {
            if !STREAMS.contains(&stream) {
                errors.not_supported(path("stream"), stream, &STREAMS);
            }
            if stream != "All" && number("tailLines").is_some() {
                let why = "`tailLines` and specific `stream` are mutually exclusive for now";
                errors.forbidden(FieldPath::root(), why);
            }
        }
        None => {}
    }
    if errors.is_empty() {
        return Ok(());
    }
    let kind = GroupKind::new("", "PodLogOptions");
    Err(ApiError::Invalid { kind, name: pod.to_owned(), errors: Box::new(errors) })
}

const STREAMS: [&str; 3] = ["All", "Stdout", "Stderr"];

fn kubelet_query(options: &Value, split_streams: bool) -> Vec<(&'static str, String)> {
    let mut query = Vec::new();
    for flag in ["follow", "previous", "timestamps"] {
        if is_set(options, flag) {
            query.push((flag, "true".to_owned()));
        }
    }
    for number in ["sinceSeconds", "tailLines", "limitBytes"] {
        if let Some(value) = options.i64_at(&[number]) {
            query.push((number, value.to_string()));
        }
    }
    if let Some(time) = options.at(&["sinceTime"]).and_then(Value::as_str) {
        query.push(("sinceTime", time.to_owned()));
    }
    if split_streams {
        query.push(("stream", options.str_at(&["stream"]).to_owned()));
    }
    query
}

/// What a kubelet's refusal becomes: kube-apiserver's `GenericHttpResponseChecker`.
fn refused(code: u16, pod: &str, said: &str) -> ApiError {
    match code {
        500 => return ApiError::Internal(said.to_owned()),
        400 => return ApiError::BadRequest(said.to_owned()),
        _ => {}
    }
    let reason = match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        406 => "NotAcceptable",
        409 => "Conflict",
        415 => "UnsupportedMediaType",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        500.. => "InternalError",
        _ => "",
    };
    ApiError::Status(Box::new(Status {
        code,
        reason: reason.to_owned(),
        // Compat: without a verb, which leaves its space.
        message: format!("{} ( pods/log {pod})", generic_message(code, said)),
        details: Some(Details {
            name: pod.to_owned(),
            kind: "pods/log".to_owned(),
            ..Details::default()
        }),
        ..Status::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_logs_are_validated_in_the_words_of_kube_apiserver() {
        let invalid = |rest: &str| format!(r#"PodLogOptions "web" is invalid: {rest}"#);
        let cases = [
            ("{tailLines: 0, limitBytes: 1, sinceSeconds: 1}", false, String::new()),
            (
                "{tailLines: -1}",
                false,
                invalid("tailLines: Invalid value: -1: must be greater than or equal to 0"),
            ),
            (
                "{limitBytes: 0}",
                false,
                invalid("limitBytes: Invalid value: 0: must be greater than 0"),
            ),
            (
                "{sinceSeconds: 0}",
                false,
                invalid("sinceSeconds: Invalid value: 0: must be greater than 0"),
            ),
            (
                "{sinceSeconds: 0, sinceTime: '2026-01-01T00:00:00Z'}",
                false,
                invalid(
                    "<nil>: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
                ),
            ),
            ("{stream: All}", false, invalid("stream: Forbidden: may not be specified")),
            ("{stream: Stdout}", true, String::new()),
            (
                "{stream: x}",
                true,
                invalid(
                    r#"stream: Unsupported value: "x": supported values: "All", "Stdout", "Stderr""#,
                ),
            ),
            (
                "{stream: Stdout, tailLines: 1}",
                true,
                invalid(
                    "<nil>: Forbidden: `tailLines` and specific `stream` are mutually exclusive for \
                     now",
                ),
            ),
        ];
        for (options, split, expected) in cases {
            let value = codec::yaml::load(options.as_bytes()).unwrap().value;
            let said = validate(&value, "web", split).err().map(|error| error.to_string());
            assert_eq!(said.unwrap_or_default(), expected, "{options}");
        }
    }

    #[test]
    fn options_of_logs_reach_the_kubelet() {
        let options = "{follow: true, previous: true, timestamps: true, tailLines: 5, limitBytes: 9, \
                       sinceTime: '2026-01-01T00:00:00Z', insecureSkipTLSVerifyBackend: true}";
        let options = codec::yaml::load(options.as_bytes()).unwrap().value;
        let query = kubelet_query(&options, false);
        let shown: Vec<_> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            shown.join("&"),
            "follow=true&previous=true&timestamps=true&tailLines=5&limitBytes=9&\
             sinceTime=2026-01-01T00:00:00Z"
        );
    }

    #[test]
    fn refusals_of_a_kubelet_become_those_of_the_server() {
        let cases = [
            (400, "no such container", "no such container"),
            (500, "boom", "Internal error occurred: boom"),
            (404, "x", "the server could not find the requested resource ( pods/log web)"),
            (403, "Forbidden (user=x)", "Forbidden (user=x) ( pods/log web)"),
        ];
        for (code, said, expected) in cases {
            let status = refused(code, "web", said).status();
            assert_eq!((status.code, status.message.as_str()), (code, expected));
        }
    }
}
