//! Log lines on standard error: klog's text by default, JSON with `--logging-format=json`. With
//! `--log-*-split-stream` errors go to standard error and the rest to standard output.
//!
//! A subscriber of our own instead of a layered one: there is one format and there are no spans, so a
//! disabled event costs one atomic load.
//!
//! Kubernetes has verbosities where `tracing` has levels: errors, warnings and `info!` are always
//! logged, `debug!` from `--v=4`, `trace!` from `--v=5`. A field `v` sets the verbosity of one
//! event: `info!(v = 2, "compacted")`. The log of requests is there from `--v=3`, and whatever
//! libraries have to say below a warning (HTTP/2 frames, gRPC) from `--v=10`.

mod format;
mod output;
mod vmodule;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use format::Fields;
use output::Output;
use vmodule::VModule;

/// The format of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
}

/// The logging flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) format: Format,
    pub(crate) verbosity: u32,
    /// File patterns with a verbosity of their own.
    pub(crate) vmodule: Vec<(String, u32)>,
    /// Errors to standard error, the rest to standard output, with a buffer of this many bytes. None: all
    /// to standard error.
    pub(crate) split: Option<usize>,
    /// How often that buffer is written out.
    pub(crate) flush_interval: Duration,
}

/// The verbosity of the running server, for `/debug/flags/v`.
#[derive(Debug, Clone)]
pub(crate) struct Verbosity(Arc<AtomicU32>);

impl Verbosity {
    /// For a server whose process has a logger of its own.
    pub(crate) fn of_host() -> Self {
        Self(Arc::default())
    }

    /// The current verbosity.
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Changes it for all further log statements.
    pub(crate) fn set(&self, verbosity: u32) {
        self.0.store(verbosity, Ordering::Relaxed);
        // Every callsite caches whether it is enabled.
        tracing::callsite::rebuild_interest_cache();
    }
}

/// Starts logging. Only the first call has an effect on the process.
pub(crate) fn start(settings: &Settings) -> Verbosity {
    let errors = Box::new(std::io::stderr());
    let output = Arc::new(match settings.split {
        None => Output::single(errors),
        Some(buffer) => Output::split(Box::new(std::io::stdout()), errors, buffer),
    });
    output.flush_every(settings.flush_interval);
    let _ = OUTPUT.set(output.clone());
    let logger = Logger::new(settings, output);
    let verbosity = logger.verbosity.clone();
    if tracing::subscriber::set_global_default(logger).is_err() {
        tracing::warn!("logging was started twice");
    }
    verbosity
}

/// Writes out what is buffered: at the end of the process.
pub(crate) fn flush() {
    if let Some(output) = OUTPUT.get() {
        output.flush();
    }
}

static OUTPUT: OnceLock<Arc<Output>> = OnceLock::new();

struct Logger {
    format: Format,
    verbosity: Verbosity,
    vmodule: VModule,
    time_zone: TimeZone,
    process: u32,
    now: fn() -> Timestamp,
    output: Arc<Output>,
}

/// The time zone of this machine. Its file is read here if `TZ` names no other: to look it up by name, all
/// files of the time zone database are listed.
fn local_time_zone() -> TimeZone {
    let named = std::env::var_os("TZ").is_some();
    let file = (!named).then(|| std::fs::read("/etc/localtime").ok()).flatten();
    let zone = file.and_then(|file| TimeZone::tzif("Local", &file).ok());
    zone.unwrap_or_else(TimeZone::system)
}

impl Logger {
    fn new(settings: &Settings, output: Arc<Output>) -> Self {
        Self {
            format: settings.format,
            verbosity: Verbosity(Arc::new(AtomicU32::new(settings.verbosity))),
            vmodule: VModule::new(&settings.vmodule),
            time_zone: local_time_zone(),
            process: std::process::id(),
            now: Timestamp::now,
            output,
        }
    }

    /// The verbosity in a source file.
    fn verbosity_at(&self, metadata: &Metadata<'_>) -> u32 {
        metadata
            .file()
            .and_then(|file| self.vmodule.level(file))
            .unwrap_or_else(|| self.verbosity.get())
    }

    fn line(&self, metadata: &Metadata<'_>, fields: &Fields) -> String {
        let now = (self.now)();
        match self.format {
            Format::Text => {
                let local = self.time_zone.to_datetime(now);
                format::text(local, self.process, metadata, fields)
            }
            Format::Json => format::json(now, metadata, fields),
        }
    }
}

impl Subscriber for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && lowest_verbosity(metadata) <= self.verbosity_at(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match self.verbosity.get().max(self.vmodule.level_max()) {
            0..REQUESTS_FROM => LevelFilter::INFO,
            REQUESTS_FROM..TRACE_FROM => LevelFilter::DEBUG,
            TRACE_FROM.. => LevelFilter::TRACE,
        })
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut fields = Fields::default();
        event.record(&mut fields);
        if fields.verbosity.is_some_and(|v| v > u64::from(self.verbosity_at(metadata))) {
            return;
        }
        // Compat: warnings are errors in the text format, and information in JSON.
        let is_info = match self.format {
            Format::Text => *metadata.level() >= Level::INFO,
            Format::Json => *metadata.level() >= Level::WARN,
        };
        self.output.write(is_info, &self.line(metadata, &fields));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        // Never called: spans are not enabled. Ids start at 1.
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// klog's convention: 4 for debugging, 5 for tracing.
const DEBUG_FROM: u32 = 4;
const TRACE_FROM: u32 = 5;

/// Compat: where kube-apiserver logs requests.
const REQUESTS_FROM: u32 = 3;
const REQUESTS: &str = "serve::request_log";
/// Where libraries are listened to.
const LIBRARIES_FROM: u32 = 10;

fn lowest_verbosity(metadata: &Metadata<'_>) -> u32 {
    match *metadata.level() {
        Level::ERROR | Level::WARN => 0,
        _ if !is_own(metadata.target()) => LIBRARIES_FROM,
        Level::INFO => 0,
        Level::DEBUG if metadata.target() == REQUESTS => REQUESTS_FROM,
        Level::DEBUG => DEBUG_FROM,
        Level::TRACE => TRACE_FROM,
    }
}

/// Whether an event is of a crate of the workspace.
fn is_own(target: &str) -> bool {
    let name = target.split("::").next().unwrap_or_default();
    OWN_CRATES.contains(&name)
}

const OWN_CRATES: [&str; 32] = [
    "admission",
    "aggregator",
    "apiextensions",
    "audit",
    "auth",
    "background",
    "builtin",
    "cel",
    "client",
    "codec",
    "connect",
    "controllers",
    "descriptions",
    "egress",
    "endpoints",
    "etcd",
    "externaljwt",
    "flowcontrol",
    "grpc",
    "kms",
    "meta",
    "otlp",
    "patch",
    "pintle",
    "pintle_testing",
    "proxy",
    "registry",
    "schema",
    "serve",
    "spdy",
    "store",
    "trace",
];

#[cfg(test)]
mod tests;
