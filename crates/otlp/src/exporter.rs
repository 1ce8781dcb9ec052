//! Spans wait in a bounded queue; a task sends them to the collector in batches. A collector that is slow
//! or down costs requests nothing: what the queue cannot take is dropped, and counted.

use std::{sync::Arc, time::Duration};

use http::uri::PathAndQuery;
use prometheus::{IntCounter, IntCounterVec, Opts, Registry};
use tokio::{
    sync::{
        Mutex,
        mpsc::{self, error::TrySendError},
    },
    time::{Instant, sleep, timeout, timeout_at},
};
use tonic::{Code, Request, client::Grpc, transport::Channel};
use tonic_prost::ProstCodec;
use trace::{FinishedSpan, Sampler, SpanSink, Tracer};

use crate::{
    config::TracingConfig,
    messages::{ExportRequest, ExportResponse, Resource},
};

/// As the OpenTelemetry SDK's batch processor.
const QUEUE_MAX: usize = 2048;
const BATCH_MAX: usize = 512;
const BATCH_DELAY: Duration = Duration::from_secs(5);
/// For one call, as OTLP's exporter.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// For a batch with all attempts; then it is dropped.
const BATCH_TIMEOUT: Duration = Duration::from_secs(30);
const BACKOFF: Duration = Duration::from_secs(5);
/// Its answer says what it did not take.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The queue's end for spans, and the tracer that fills it.
pub struct Exporter {
    pub tracer: Tracer,
    queue: Arc<Queue>,
    sending: Sending,
    /// Locked by the task that sends, so that it can be started again.
    queued: Mutex<mpsc::Receiver<Queued>>,
}

struct Queue {
    sender: mpsc::Sender<Queued>,
    dropped: IntCounter,
}

enum Queued {
    Span(Box<FinishedSpan>),
    /// Send what there is, and say so.
    Flush(tokio::sync::oneshot::Sender<()>),
}

impl SpanSink for Queue {
    fn finished(&self, span: FinishedSpan) {
        match self.sender.try_send(Queued::Span(Box::new(span))) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Closed(_)) => self.dropped.inc(),
        }
    }
}

impl Exporter {
    /// Prepares the export; [`Exporter::run`] sends. `instance` is the server among those of the cluster.
    pub fn new(
        config: &TracingConfig,
        instance: &str,
        registry: &Registry,
        dialer: Option<grpc::Dialer>,
    ) -> Result<Self, String> {
        let name = "pintle_tracing_spans_total";
        let help = "Spans by what became of them: exported, dropped because the queue was full, \
                    failed because the collector did not take them.";
        let spans = IntCounterVec::new(Opts::new(name, help), &["result"]).expect("valid names");
        registry.register(Box::new(spans.clone())).map_err(|error| error.to_string())?;
        let channel = config.endpoint.connect(CALL_TIMEOUT, dialer)?;
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        let queue = Arc::new(Queue { sender, dropped: spans.with_label_values(&["dropped"]) });
        let tracer = Tracer {
            sampler: Sampler::per_million(config.sampling_rate_per_million),
            sink: queue.clone(),
        };
        let sending = Sending {
            channel,
            resource: Resource::of_server(instance),
            exported: spans.with_label_values(&["exported"]),
            failed: spans.with_label_values(&["failed"]),
        };
        Ok(Self { tracer, queue, sending, queued: Mutex::new(receiver) })
    }

    /// Sends the spans of the queue.
    pub async fn run(self: Arc<Self>) {
        send_all(&self.sending, &mut *self.queued.lock().await).await;
    }

    /// Waits until the spans of the queue are sent, but not longer than `at_most`.
    pub async fn flush(&self, at_most: Duration) {
        let (done, flushed) = tokio::sync::oneshot::channel();
        let flush = async {
            if self.queue.sender.send(Queued::Flush(done)).await.is_ok() {
                let _ = flushed.await;
            }
        };
        if timeout(at_most, flush).await.is_err() {
            tracing::warn!("the last spans were not sent to the collector");
        }
    }
}

async fn send_all(sending: &Sending, queue: &mut mpsc::Receiver<Queued>) {
    let mut down = false;
    while let Some(first) = queue.recv().await {
        let (mut batch, mut flushed) = (Vec::new(), Vec::new());
        let until = Instant::now() + BATCH_DELAY;
        let mut next = Some(first);
        while let Some(queued) = next {
            match queued {
                Queued::Span(span) => batch.push(*span),
                Queued::Flush(done) => flushed.push(done),
            }
            if batch.len() >= BATCH_MAX || !flushed.is_empty() {
                break;
            }
            next = timeout_at(until, queue.recv()).await.ok().flatten();
        }
        if !batch.is_empty() {
            let failed = sending.send(batch).await.err();
            // A collector that stays down is one line in the log.
            match (&failed, down) {
                (Some(why), false) => tracing::warn!(why, "spans cannot be sent to the collector"),
                (None, true) => tracing::info!("the collector takes spans again"),
                _ => {}
            }
            down = failed.is_some();
        }
        for done in flushed {
            let _ = done.send(());
        }
    }
}

struct Sending {
    channel: Channel,
    resource: Resource,
    exported: IntCounter,
    failed: IntCounter,
}

impl Sending {
    async fn send(&self, batch: Vec<FinishedSpan>) -> Result<(), String> {
        let count = batch.len() as u64;
        let request = ExportRequest::new(self.resource.clone(), batch);
        let until = Instant::now() + BATCH_TIMEOUT;
        loop {
            let outcome =
                timeout(CALL_TIMEOUT, export(self.channel.clone(), request.clone())).await;
            let (why, again) = match outcome {
                Ok(Ok(response)) => {
                    let refused = response.partial_success.unwrap_or_default();
                    let rejected =
                        u64::try_from(refused.rejected_spans).unwrap_or_default().min(count);
                    self.exported.inc_by(count - rejected);
                    self.failed.inc_by(rejected);
                    return if rejected == 0 { Ok(()) } else { Err(refused.error_message) };
                }
                Ok(Err(status)) => (status.to_string(), may_be_repeated(status.code())),
                Err(_) => ("timed out".to_owned(), true),
            };
            if !again || Instant::now() + BACKOFF >= until {
                self.failed.inc_by(count);
                return Err(why);
            }
            sleep(BACKOFF).await;
        }
    }
}

async fn export(channel: Channel, request: ExportRequest) -> Result<ExportResponse, tonic::Status> {
    let mut grpc = Grpc::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
    grpc.ready().await.map_err(|error| tonic::Status::from_error(error.into()))?;
    let codec = ProstCodec::<ExportRequest, ExportResponse>::default();
    let path = PathAndQuery::from_static(EXPORT);
    Ok(grpc.unary(Request::new(request), path, codec).await?.into_inner())
}

const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// As the protocol has it.
fn may_be_repeated(code: Code) -> bool {
    matches!(
        code,
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss
            | Code::ResourceExhausted
    )
}

#[cfg(test)]
mod tests {
    use std::time::Instant as StdInstant;

    use trace::Span;

    use super::*;

    fn exporter() -> (Arc<Exporter>, Registry) {
        let registry = Registry::new();
        // No server listens there.
        let config = TracingConfig::parse(
            b"apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n\
              endpoint: 127.0.0.1:1\nsamplingRatePerMillion: 1000000",
        );
        let exporter = Exporter::new(&config.expect("a config"), "test", &registry, None);
        (Arc::new(exporter.expect("an exporter")), registry)
    }

    fn count(registry: &Registry, result: &str) -> u64 {
        let families = registry.gather();
        let metrics = families.iter().flat_map(prometheus::proto::MetricFamily::get_metric);
        let of = metrics.filter(|metric| metric.get_label()[0].value() == result);
        of.map(|metric| metric.get_counter().get_value() as u64).sum()
    }

    #[tokio::test]
    async fn a_full_queue_drops_and_counts_and_never_waits() {
        let (exporter, registry) = exporter();
        for _ in 0..QUEUE_MAX + 100 {
            let began = StdInstant::now();
            drop(Span::of_request(Some(&exporter.tracer), None, false, began, || "GET".to_owned()));
        }
        assert_eq!(count(&registry, "dropped"), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_nobody_takes_is_given_up_and_counted() {
        let (exporter, registry) = exporter();
        let began = StdInstant::now();
        drop(Span::of_request(Some(&exporter.tracer), None, false, began, || "GET".to_owned()));
        tokio::select! {
            () = exporter.flush(BATCH_TIMEOUT * 2) => {}
            () = exporter.clone().run() => panic!("the queue is open"),
        }
        assert_eq!(count(&registry, "failed"), 1);
        assert_eq!(count(&registry, "exported"), 0);
    }
}
