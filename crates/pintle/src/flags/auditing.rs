//! Audit logs.

use super::FlagKind::{Bool, Duration, Float32, Int, Text};
use super::{Flag, done};

pub(super) const FLAGS: &[Flag] = &[
    done("audit-log-batch-buffer-size", Int, "10000")
        .help("Events that may wait to be written (mode batch)."),
    done("audit-log-batch-max-size", Int, "1").help("Events written at once (mode batch)."),
    done("audit-log-batch-max-wait", Duration, "0s")
        .help("Longest wait for a batch to fill up (mode batch)."),
    done("audit-log-batch-throttle-burst", Int, "0")
        .help("Batches above the rate that are written at once after a quiet time (mode batch)."),
    done("audit-log-batch-throttle-enable", Bool, "false")
        .help("Limit the rate of batches (mode batch)."),
    done("audit-log-batch-throttle-qps", Float32, "0").help("Batches per second (mode batch)."),
    done("audit-log-compress", Bool, "false").help("Compress rotated files with gzip."),
    done("audit-log-format", Text, "json").help("json, or legacy for one line of text per event."),
    done("audit-log-maxage", Int, "366").help("Days to keep rotated files; 0: forever."),
    done("audit-log-maxbackup", Int, "100").help("Rotated files to keep; 0: all."),
    done("audit-log-maxsize", Int, "100")
        .help("Megabytes after which the file is rotated; 0: never."),
    done("audit-log-mode", Text, "blocking").help(
        "batch, blocking (a response waits for its event) or blocking-strict (and fails with it).",
    ),
    done("audit-log-path", Text, "")
        .help("File that every request is logged to; - is standard output."),
    done("audit-log-truncate-enabled", Bool, "false")
        .help("Cut events and batches that are too big."),
    done("audit-log-truncate-max-batch-size", Int, "10485760").help("Bytes of the biggest batch."),
    done("audit-log-truncate-max-event-size", Int, "102400")
        .help("Bytes of the biggest event; request and response are left out above it."),
    done("audit-log-version", Text, "audit.k8s.io/v1")
        .help("API version of the events in the file."),
    done("audit-policy-file", Text, "")
        .help("Audit policy: which requests are logged, and in which detail."),
    done("audit-webhook-batch-buffer-size", Int, "10000")
        .help("Events that may wait to be sent (mode batch)."),
    done("audit-webhook-batch-initial-backoff", Duration, "10s")
        .help("Wait before the first retry.")
        .deprecated("Deprecated, use --audit-webhook-initial-backoff instead.")
        .hidden(),
    done("audit-webhook-batch-max-size", Int, "400").help("Events sent at once (mode batch)."),
    done("audit-webhook-batch-max-wait", Duration, "30s")
        .help("Longest wait for a batch to fill up (mode batch)."),
    done("audit-webhook-batch-throttle-burst", Int, "15")
        .help("Batches above the rate that are sent at once after a quiet time (mode batch)."),
    done("audit-webhook-batch-throttle-enable", Bool, "true")
        .help("Limit the rate of batches (mode batch)."),
    done("audit-webhook-batch-throttle-qps", Float32, "10")
        .help("Batches per second (mode batch)."),
    done("audit-webhook-config-file", Text, "")
        .help("Kubeconfig of the server that events are sent to."),
    done("audit-webhook-initial-backoff", Duration, "10s").help("Wait before the first retry."),
    done("audit-webhook-mode", Text, "batch").help(
        "batch, blocking (a response waits for its event) or blocking-strict (and fails with it).",
    ),
    done("audit-webhook-truncate-enabled", Bool, "false")
        .help("Cut events and batches that are too big."),
    done("audit-webhook-truncate-max-batch-size", Int, "10485760")
        .help("Bytes of the biggest batch."),
    done("audit-webhook-truncate-max-event-size", Int, "102400")
        .help("Bytes of the biggest event; request and response are left out above it."),
    done("audit-webhook-version", Text, "audit.k8s.io/v1").help("API version of the events sent."),
];
