//! Spans of requests: what `k8s.io/component-base/tracing` and the OpenTelemetry SDK are to kube-apiserver.
//!
//! The chain starts a [`Span`] per request ([`Span::of_request`]) and serves the request inside of it
//! ([`Span::run`]). Whatever happens there may start a child ([`start`]) without being handed anything:
//! the span that a future runs in is found in a thread-local variable, which is set while the future is
//! polled. Outgoing calls take their headers from it ([`inject`]). Finished spans go to a [`SpanSink`];
//! crate `otlp` has the one that exports them.
//!
//! Without `--tracing-config-file`, and for requests that are not sampled, [`start`] reads one
//! thread-local variable and does nothing else.
//!
//! # Why not the crates of OpenTelemetry
//!
//! `opentelemetry`, `opentelemetry_sdk` and `opentelemetry-otlp` bring some 30 crates that nothing else here
//! needs, a second reactor-agnostic runtime layer, and an exporter whose queue counts what it drops in a log line
//! only. What kube-apiserver uses of them is a root sampler, one processor and one message over gRPC.

mod context;
mod current;
mod propagation;
mod span;

pub use self::{
    context::{Sampler, SpanContext, SpanId, TraceId},
    current::{InScope, Scope, current_scope},
    propagation::{Propagated, inject, propagated_headers},
    span::{
        Attribute, Event, FinishedSpan, Kind, Link, Span, SpanSink, Status, Tracer, start,
        start_kind,
    },
};
