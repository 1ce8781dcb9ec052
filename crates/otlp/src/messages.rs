//! The messages of `opentelemetry.proto.collector.trace.v1`, as far as they are sent.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost::{Message, Oneof};
use trace::{Attribute, FinishedSpan, Kind, SpanContext};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(crate) rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub(crate) error_message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
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

#[derive(Clone, PartialEq, Message)]
#[expect(clippy::struct_field_names, reason = "the protocol's")]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
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
    #[prost(message, repeated, tag = "11")]
    events: Vec<Event>,
    #[prost(uint32, tag = "12")]
    dropped_events_count: u32,
    #[prost(message, repeated, tag = "13")]
    links: Vec<Link>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(fixed64, tag = "1")]
    time_unix_nano: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, repeated, tag = "3")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct Link {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

const STATUS_ERROR: i32 = 2;

impl Resource {
    /// The server, as all its spans name it.
    pub(crate) fn of_server(instance: &str) -> Self {
        let attribute = |key, value: &str| key_value(key, value.into());
        let attributes = vec![
            attribute("service.name", "apiserver"),
            attribute("service.instance.id", instance),
        ];
        Self { attributes }
    }
}

impl ExportRequest {
    pub(crate) fn new(resource: Resource, spans: Vec<FinishedSpan>) -> Self {
        let scope =
            Scope { name: "pintle".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let spans = spans.into_iter().map(Span::from).collect();
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
        Self { resource_spans: vec![ResourceSpans { resource: Some(resource), scope_spans }] }
    }
}

impl From<FinishedSpan> for Span {
    fn from(span: FinishedSpan) -> Self {
        let event = |event: trace::Event| Event {
            time_unix_nano: unix_nanos(event.time),
            name: event.name.to_owned(),
            attributes: key_values(event.attributes),
        };
        let link = |link: SpanContext| Link {
            trace_id: link.trace_id.to_vec(),
            span_id: link.span_id.to_vec(),
            trace_state: trace_state(&link),
        };
        let status = match span.status {
            trace::Status::Unset => None,
            trace::Status::Error(message) => Some(Status { message, code: STATUS_ERROR }),
        };
        Self {
            trace_id: span.context.trace_id.to_vec(),
            span_id: span.context.span_id.to_vec(),
            trace_state: trace_state(&span.context),
            parent_span_id: span.parent.map(Vec::from).unwrap_or_default(),
            name: span.name.into_owned(),
            kind: match span.kind {
                Kind::Internal => 1,
                Kind::Server => 2,
                Kind::Client => 3,
            },
            start_time_unix_nano: unix_nanos(span.started),
            end_time_unix_nano: unix_nanos(span.started + span.duration),
            attributes: key_values(span.attributes),
            events: span.events.into_iter().map(event).collect(),
            dropped_events_count: span.dropped_events,
            links: span.link.into_iter().map(link).collect(),
            status,
        }
    }
}

fn trace_state(context: &SpanContext) -> String {
    let state = context.trace_state.as_ref().and_then(|state| state.to_str().ok());
    state.unwrap_or_default().to_owned()
}

fn key_values(attributes: Vec<(&'static str, Attribute)>) -> Vec<KeyValue> {
    attributes.into_iter().map(|(key, value)| key_value(key, value)).collect()
}

fn key_value(key: &str, value: Attribute) -> KeyValue {
    let value = match value {
        Attribute::Text(text) => OneValue::Text(text),
        Attribute::Int(number) => OneValue::Int(number),
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

fn unix_nanos(time: SystemTime) -> u64 {
    let since: Duration = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
