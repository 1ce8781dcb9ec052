//! Observability: metrics, logs, traces.

use super::FlagKind::{Bool, Duration, Level, Quantity, Text, TextMap, Texts, VModule};
use super::{Flag, done};

pub(super) const METRICS: &[Flag] = &[
    done("allow-metric-labels", TextMap, "").help(
        "Allowed values of metric labels, as metric,label='value,value'; others are counted \
         together.",
    ),
    done("allow-metric-labels-manifest", Text, "").help("The same, from a file."),
    done("disabled-metrics", Texts, "").help("Metrics to leave out."),
    done("show-hidden-metrics-for-version", Text, "").help(
        "Show the metrics that were hidden after this previous minor version, as 1.35; Pintle hides \
         none.",
    ),
];

pub(super) const LOGS: &[Flag] = &[
    done("log-flush-frequency", Duration, "5s").help(
        "How often buffered log lines are written; without a buffer each is written at once.",
    ),
    done("log-json-info-buffer-size", Quantity, "0").help(
        "Buffer of what is no error with --log-json-split-stream, in bytes (at most 64Mi). Needs \
         feature gate LoggingAlphaOptions, as the others.",
    ),
    done("log-json-split-stream", Bool, "false")
        .help("JSON: errors to standard error, the rest to standard output."),
    done("log-text-info-buffer-size", Quantity, "0")
        .help("Buffer of what is no error with --log-text-split-stream, in bytes (at most 64Mi)."),
    done("log-text-split-stream", Bool, "false")
        .help("Text: errors and warnings to standard error, the rest to standard output."),
    done("logging-format", Text, "text").help("text or json."),
    done("v", Level, "0").short('v').help(
        "Log verbosity: 0 is quiet, 2 usual, 3 logs requests, 4 debugging, 5 and more tracing; \
             10 lets the libraries speak.",
    ),
    done("vmodule", VModule, "")
        .help("Verbosity of single source files, as chain=4,watch*=5 (text format only)."),
];

pub(super) const TRACES: &[Flag] = &[done("tracing-config-file", Text, "")
    .help("TracingConfiguration file: where spans of requests are sent, and how many.")];
