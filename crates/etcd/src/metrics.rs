//! `grpc_client_*` and `etcd_lease_object_counts`: one set for the process, as kube-apiserver has it.

use std::sync::LazyLock;

use prometheus::{Histogram, HistogramOpts, IntCounterVec, Opts, Registry};
use tonic::Code;

static FAMILIES: LazyLock<Families> = LazyLock::new(Families::new);

struct Families {
    started: IntCounterVec,
    handled: IntCounterVec,
    sent: IntCounterVec,
    received: IntCounterVec,
    lease_objects: Histogram,
}

const LABELS: [&str; 3] = ["grpc_method", "grpc_service", "grpc_type"];

impl Families {
    fn new() -> Self {
        let counter = |name: &str, help: &str, labels: &[&str]| {
            IntCounterVec::new(Opts::new(name, help), labels).expect("valid names")
        };
        let lease_objects =
            HistogramOpts::new("etcd_lease_object_counts", "Objects of a lease of etcd.");
        // As upstream.
        let buckets = vec![10.0, 50.0, 100.0, 500.0, 1000.0, 2500.0, 5000.0];
        Self {
            started: counter("grpc_client_started_total", "Calls to etcd that began.", &LABELS),
            handled: counter(
                "grpc_client_handled_total",
                "Calls to etcd that ended, by code.",
                &["grpc_code", "grpc_method", "grpc_service", "grpc_type"],
            ),
            sent: counter("grpc_client_msg_sent_total", "Messages sent to etcd.", &LABELS),
            received: counter(
                "grpc_client_msg_received_total",
                "Messages received from etcd.",
                &LABELS,
            ),
            lease_objects: Histogram::with_opts(lease_objects.buckets(buckets))
                .expect("valid names"),
        }
    }
}

/// Makes the metrics of all clients of etcd part of a registry.
pub fn register_metrics(registry: &Registry) -> Result<(), String> {
    let families = &*FAMILIES;
    let register = |metric| registry.register(metric).map_err(|error| error.to_string());
    register(Box::new(families.started.clone()))?;
    register(Box::new(families.handled.clone()))?;
    register(Box::new(families.sent.clone()))?;
    register(Box::new(families.received.clone()))?;
    register(Box::new(families.lease_objects.clone()))
}

/// The kind of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallType {
    Unary,
    BidiStream,
}

fn labels(method: &'static str, call_type: CallType) -> [&'static str; 3] {
    let path = method.trim_start_matches('/');
    let (service, method) = path.split_once('/').unwrap_or((path, ""));
    let call_type = match call_type {
        CallType::Unary => "unary",
        CallType::BidiStream => "bidi_stream",
    };
    [method, service, call_type]
}

pub(crate) fn started(method: &'static str, call_type: CallType) {
    FAMILIES.started.with_label_values(&labels(method, call_type)).inc();
}

pub(crate) fn sent(method: &'static str, call_type: CallType) {
    FAMILIES.sent.with_label_values(&labels(method, call_type)).inc();
}

pub(crate) fn received(method: &'static str, call_type: CallType) {
    FAMILIES.received.with_label_values(&labels(method, call_type)).inc();
}

pub(crate) fn handled(method: &'static str, call_type: CallType, code: Code) {
    let [method, service, call_type] = labels(method, call_type);
    FAMILIES.handled.with_label_values(&[go_name(code), method, service, call_type]).inc();
}

/// A lease is not used any more.
pub(crate) fn lease_closed(objects: usize) {
    FAMILIES.lease_objects.observe(objects as f64);
}

/// The code as Go spells it.
fn go_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}
