//! A backend: where events go, in which form, and whether requests wait for it.

use std::{path::Path, sync::Arc, time::Duration};

use background::Tasks;
use client::Dial;
use meta::AuditLevel;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::{
    batch::{self, BatchLimits, Queue},
    event::Event,
    log_file::{LogFile, Rotation},
    metrics::AuditMetrics,
    options::{
        BATCH, BLOCKING_STRICT, DeliveryOptions, LEGACY, LogOptions, TruncateOptions,
        WebhookOptions,
    },
    webhook::Webhook,
};

pub(crate) struct Backend {
    output: Arc<Output>,
    format: Format,
    /// The largest event; None: any size.
    event_bytes_max: Option<usize>,
    delivery: Delivery,
    metrics: AuditMetrics,
}

pub(crate) enum Output {
    Log(Arc<LogFile>),
    Webhook(Webhook),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Line,
    Legacy,
    /// An item of an `EventList`.
    Item,
}

enum Delivery {
    Batch {
        queue: Arc<Queue>,
        task: Mutex<Option<AbortHandle>>,
    },
    /// Requests wait. Strict: they fail if their first event cannot be stored.
    Blocking {
        strict: bool,
    },
}

/// What became of an event.
pub(crate) enum Handed {
    Done,
    Failed,
    /// To be sent by the caller: `Backend::send`.
    Waiting(Vec<u8>),
}

impl Output {
    pub(crate) fn plugin(&self) -> &'static str {
        match self {
            Self::Log(_) => "log",
            Self::Webhook(_) => "webhook",
        }
    }

    pub(crate) async fn send(&self, batch: Vec<Vec<u8>>) -> Result<(), String> {
        match self {
            Self::Webhook(webhook) => webhook.send(&batch).await,
            Self::Log(file) => {
                let file = file.clone();
                // The disk may be slow; requests on this thread do not wait for it.
                let written = tokio::task::spawn_blocking(move || file.write(&batch)).await;
                match written {
                    Ok(written) => written.map_err(|error| error.to_string()),
                    Err(panicked) => Err(panicked.to_string()),
                }
            }
        }
    }
}

impl Backend {
    pub(crate) fn log(
        options: &LogOptions,
        metrics: &AuditMetrics,
        tasks: &Tasks,
    ) -> Result<Self, String> {
        let number = |number: i64| u64::try_from(number).unwrap_or(0);
        let rotation = Rotation {
            max_bytes: number(options.max_size_megabytes).saturating_mul(1 << 20),
            max_age: Duration::from_secs(number(options.max_age_days).saturating_mul(24 * 3600)),
            max_backups: usize::try_from(options.max_backups).unwrap_or(0),
            compress: options.compress,
        };
        let file = LogFile::open(Path::new(&options.path), rotation)
            .map_err(|error| format!("--audit-log-path {}: {error}", options.path))?;
        let format = if options.format == LEGACY { Format::Legacy } else { Format::Line };
        let output = Output::Log(Arc::new(file));
        Ok(Self::new(output, format, &options.delivery, &options.truncate, metrics, tasks))
    }

    pub(crate) fn webhook(
        kubeconfig: &Path,
        options: &WebhookOptions,
        metrics: &AuditMetrics,
        dial: Option<Arc<dyn Dial>>,
        tasks: &Tasks,
    ) -> Result<Self, String> {
        let webhook = Webhook::load(kubeconfig, options.initial_backoff, dial)
            .map_err(|error| format!("initializing audit webhook: {error}"))?;
        let output = Output::Webhook(webhook);
        let (delivery, truncate) = (&options.delivery, &options.truncate);
        Ok(Self::new(output, Format::Item, delivery, truncate, metrics, tasks))
    }

    fn new(
        output: Output,
        format: Format,
        delivery: &DeliveryOptions,
        truncate: &TruncateOptions,
        metrics: &AuditMetrics,
        tasks: &Tasks,
    ) -> Self {
        let bytes = |number: i64| truncate.enabled.then(|| usize::try_from(number).unwrap_or(1));
        let batch_bytes_max = bytes(truncate.max_batch_bytes).unwrap_or(usize::MAX);
        let output = Arc::new(output);
        let delivery = if delivery.mode == BATCH {
            let limits = BatchLimits::new(delivery, &output, batch_bytes_max);
            let queue = Arc::new(Queue::new(limits));
            let task = batch::start(queue.clone(), output.clone(), metrics.clone(), tasks);
            Delivery::Batch { queue, task: Mutex::new(Some(task)) }
        } else {
            Delivery::Blocking { strict: delivery.mode == BLOCKING_STRICT }
        };
        let event_bytes_max = bytes(truncate.max_event_bytes);
        Self { output, format, event_bytes_max, delivery, metrics: metrics.clone() }
    }

    /// Hands an event over as far as that needs no waiting.
    pub(crate) fn hand_over(&self, event: &Event) -> Handed {
        let Some(bytes) = self.encode(event) else { return Handed::Done };
        match (&self.delivery, &*self.output) {
            (Delivery::Batch { queue, .. }, _) => {
                if let Err(why) = queue.push(bytes) {
                    self.metrics.failed("buffered", 1, &why);
                }
                Handed::Done
            }
            (Delivery::Blocking { strict }, Output::Log(file)) => match file.write(&[bytes]) {
                Ok(()) => Handed::Done,
                Err(error) => {
                    self.metrics.failed("log", 1, &error);
                    if *strict { Handed::Failed } else { Handed::Done }
                }
            },
            (Delivery::Blocking { .. }, Output::Webhook(_)) => Handed::Waiting(bytes),
        }
    }

    /// Sends what `hand_over` left to its caller; false: the request has to fail.
    pub(crate) async fn send(&self, bytes: Vec<u8>) -> bool {
        match self.output.send(vec![bytes]).await {
            Ok(()) => true,
            Err(why) => {
                self.metrics.failed(self.output.plugin(), 1, &why);
                !matches!(self.delivery, Delivery::Blocking { strict: true })
            }
        }
    }

    /// None: too large even without its objects. Compat: that does not fail the request.
    fn encode(&self, event: &Event) -> Option<Vec<u8>> {
        let Some(max) = self.event_bytes_max else { return Some(self.write(event)) };
        // Compat: what counts is the line of JSON, whatever the format.
        let line_bytes = |event: &Event| {
            let mut line = Vec::new();
            event.write_line(&mut line);
            line.len()
        };
        if line_bytes(event) <= max {
            return Some(self.write(event));
        }
        if event.level >= AuditLevel::Request {
            let mut event = event.clone();
            event.truncate();
            if line_bytes(&event) <= max {
                return Some(self.write(&event));
            }
        }
        self.metrics.failed("truncate", 1, &"event is too large even after truncating");
        None
    }

    fn write(&self, event: &Event) -> Vec<u8> {
        let mut out = Vec::with_capacity(EVENT_BYTES);
        match self.format {
            Format::Line => event.write_line(&mut out),
            Format::Item => event.write_item(&mut out),
            Format::Legacy => {
                out.extend_from_slice(event.to_legacy().as_bytes());
                out.push(b'\n');
            }
        }
        out
    }

    /// Sends what is queued. Events that have not reached the backend when the time is up are lost,
    /// and counted.
    pub(crate) async fn flush(&self, within: Duration) {
        let Delivery::Batch { queue, task } = &self.delivery else { return };
        queue.close();
        let Some(task) = task.lock().take() else { return };
        if tokio::time::timeout(within, queue.drained()).await.is_err() {
            task.abort();
            let why = format!("not flushed within {within:?} at shutdown");
            self.metrics.failed(self.output.plugin(), queue.pending(), &why);
        }
    }
}

/// An event without objects fits.
const EVENT_BYTES: usize = 1024;
