//! An OpenTelemetry collector for tests: it keeps the spans that are exported to it over gRPC.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::{Message, Oneof};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::http::runtime;

/// A collector on a free port of loopback, until it is dropped.
pub struct Collector {
    /// What a `TracingConfiguration` wants.
    pub endpoint: String,
    spans: Arc<Mutex<Vec<CollectedSpan>>>,
    server: AbortHandle,
}

/// A span as it came.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectedSpan {
    pub name: String,
    /// 1 internal, 2 server, 3 client.
    pub kind: i32,
    /// In hexadecimal digits, as all ids.
    pub trace_id: String,
    pub span_id: String,
    pub parent: String,
    /// Numbers as text.
    pub attributes: BTreeMap<String, String>,
    /// The traces that it names without being part of them.
    pub links: Vec<String>,
    /// Of the process.
    pub resource: BTreeMap<String, String>,
    pub nanos: u64,
}

impl Collector {
    pub fn start() -> Self {
        let _inside = runtime().enter();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let endpoint = listener.local_addr().expect("an address").to_string();
        let listener = TcpListener::from_std(listener).expect("a socket");
        let spans = Arc::new(Mutex::default());
        let server = runtime().spawn(serve(listener, spans.clone())).abort_handle();
        Self { endpoint, spans, server }
    }

    /// All spans so far.
    pub fn spans(&self) -> Vec<CollectedSpan> {
        self.spans.lock().expect("no thread panics while holding it").clone()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.server.abort();
    }
}

type Spans = Arc<Mutex<Vec<CollectedSpan>>>;

async fn serve(listener: TcpListener, spans: Spans) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let spans = spans.clone();
        connections.spawn(async move {
            let answer = service_fn(move |request| answer(request, spans.clone()));
            let server = http2::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(TokioIo::new(socket), answer).await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    spans: Spans,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let known =
        request.uri().path() == "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
    // Behind the five bytes that say how long it is.
    let message = body.ok().and_then(|body| Export::decode(body.slice(5.min(body.len())..)).ok());
    let status = match message.filter(|_| known) {
        Some(message) => {
            spans.lock().expect("no thread panics while holding it").extend(collected(message));
            "0"
        }
        None => "12",
    };
    let status = [(HeaderName::from_static("grpc-status"), HeaderValue::from_static(status))];
    let trailers = std::future::ready(Some(Ok(HeaderMap::from_iter(status))));
    // An empty message.
    let body = Full::new(Bytes::from_static(&[0; 5])).with_trailers(trailers).boxed();
    let response = Response::builder().header("content-type", "application/grpc").body(body);
    Ok(response.expect("a plain response"))
}

fn collected(message: Export) -> Vec<CollectedSpan> {
    let mut found = Vec::new();
    for of_resource in message.resource_spans {
        let resource = of_resource.resource.map(|resource| attributes(resource.attributes));
        let resource = resource.unwrap_or_default();
        for span in of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            found.push(CollectedSpan {
                name: span.name,
                kind: span.kind,
                trace_id: hex(&span.trace_id),
                span_id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                attributes: attributes(span.attributes),
                links: span.links.iter().map(|link| hex(&link.trace_id)).collect(),
                resource: resource.clone(),
                nanos: span.end_time_unix_nano.saturating_sub(span.start_time_unix_nano),
            });
        }
    }
    found
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attributes(pairs: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value: Option<AnyValue>| match value.and_then(|value| value.value) {
        Some(OneValue::Text(text)) => text,
        Some(OneValue::Int(number)) => number.to_string(),
        None => String::new(),
    };
    pairs.into_iter().map(|pair| (pair.key, text(pair.value))).collect()
}

#[derive(Clone, PartialEq, Message)]
struct Export {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
#[expect(clippy::struct_field_names, reason = "the protocol's")]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "13")]
    links: Vec<Link>,
}

#[derive(Clone, PartialEq, Message)]
struct Link {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "OneValue", tags = "1, 3")]
    value: Option<OneValue>,
}

#[derive(Clone, PartialEq, Oneof)]
enum OneValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Int(i64),
}
