//! Audit logs. None of it is built yet, and an audit trail that is missing in silence is worse than
//! none, so each of these is refused.

use super::FlagKind::{Bool, Duration, Float32, Int, Text};
use super::{Flag, refused};

pub(super) const FLAGS: &[Flag] = &[
    refused("audit-log-batch-buffer-size", Int, "10000")
        .help("Events that may wait to be written (mode batch)."),
    refused("audit-log-batch-max-size", Int, "1").help("Events written at once (mode batch)."),
    refused("audit-log-batch-max-wait", Duration, "0s")
        .help("Longest wait for a batch to fill up (mode batch)."),
    refused("audit-log-batch-throttle-burst", Int, "0")
        .help("Batches above the rate that are written at once after a quiet time (mode batch)."),
    refused("audit-log-batch-throttle-enable", Bool, "false")
        .help("Limit the rate of batches (mode batch)."),
    refused("audit-log-batch-throttle-qps", Float32, "0").help("Batches per second (mode batch)."),
    refused("audit-log-compress", Bool, "false").help("Compress rotated files with gzip."),
    refused("audit-log-format", Text, "json")
        .help("json, or legacy for one line of text per event."),
    refused("audit-log-maxage", Int, "366").help("Days to keep rotated files; 0: forever."),
    refused("audit-log-maxbackup", Int, "100").help("Rotated files to keep; 0: all."),
    refused("audit-log-maxsize", Int, "100")
        .help("Megabytes after which the file is rotated; 0: never."),
    refused("audit-log-mode", Text, "blocking").help(
        "batch, blocking (a response waits for its event) or blocking-strict (and fails with it).",
    ),
    refused("audit-log-path", Text, "")
        .help("File that every request is logged to; - is standard output."),
    refused("audit-log-truncate-enabled", Bool, "false")
        .help("Cut events and batches that are too big."),
    refused("audit-log-truncate-max-batch-size", Int, "10485760")
        .help("Bytes of the biggest batch."),
    refused("audit-log-truncate-max-event-size", Int, "102400")
        .help("Bytes of the biggest event; request and response are left out above it."),
    refused("audit-log-version", Text, "audit.k8s.io/v1")
        .help("API version of the events in the file."),
    refused("audit-policy-file", Text, "")
        .help("Audit policy: which requests are logged, and in which detail."),
    refused("audit-webhook-batch-buffer-size", Int, "10000")
        .help("Events that may wait to be sent (mode batch)."),
    refused("audit-webhook-batch-initial-backoff", Duration, "10s")
        .help("Wait before the first retry.")
        .deprecated("Deprecated, use --audit-webhook-initial-backoff instead.")
        .hidden(),
    refused("audit-webhook-batch-max-size", Int, "400").help("Events sent at once (mode batch)."),
    refused("audit-webhook-batch-max-wait", Duration, "30s")
        .help("Longest wait for a batch to fill up (mode batch)."),
    refused("audit-webhook-batch-throttle-burst", Int, "15")
        .help("Batches above the rate that are sent at once after a quiet time (mode batch)."),
    refused("audit-webhook-batch-throttle-enable", Bool, "true")
        .help("Limit the rate of batches (mode batch)."),
    refused("audit-webhook-batch-throttle-qps", Float32, "10")
        .help("Batches per second (mode batch)."),
    refused("audit-webhook-config-file", Text, "")
        .help("Kubeconfig of the server that events are sent to."),
    refused("audit-webhook-initial-backoff", Duration, "10s").help("Wait before the first retry."),
    refused("audit-webhook-mode", Text, "batch").help(
        "batch, blocking (a response waits for its event) or blocking-strict (and fails with it).",
    ),
    refused("audit-webhook-truncate-enabled", Bool, "false")
        .help("Cut events and batches that are too big."),
    refused("audit-webhook-truncate-max-batch-size", Int, "10485760")
        .help("Bytes of the biggest batch."),
    refused("audit-webhook-truncate-max-event-size", Int, "102400")
        .help("Bytes of the biggest event; request and response are left out above it."),
    refused("audit-webhook-version", Text, "audit.k8s.io/v1")
        .help("API version of the events sent."),
];
