//! Exports spans to an OpenTelemetry collector: OTLP over gRPC, as `--tracing-config-file` says.
//!
//! `config` reads the file, `endpoint` connects, `messages` has the protocol, `exporter` the queue and the
//! task that empties it. A crate of its own for the same reason as `etcd`: only `pintle` needs gRPC.

mod config;
mod endpoint;
mod exporter;
mod messages;

pub use config::TracingConfig;
pub use exporter::Exporter;
