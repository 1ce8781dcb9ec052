//! Mode `batch`: a bounded queue, and a task that takes batches from it.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::AtomicUsize, atomic::Ordering},
    time::Duration,
};

use background::Tasks;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, Semaphore, watch},
    task::AbortHandle,
    time::Instant,
};

use crate::{backend::Output, metrics::AuditMetrics, options::DeliveryOptions};

/// The queue of a backend.
pub(crate) struct Queue {
    limits: BatchLimits,
    state: Mutex<State>,
    /// The task that empties the queue.
    changed: Notify,
    /// Events that were taken from the queue and have not reached the backend yet.
    under_way: AtomicUsize,
    /// The queue is closed, and all events were sent.
    drained: watch::Sender<bool>,
}

#[derive(Clone, Debug)]
pub(crate) struct BatchLimits {
    pub(crate) queued_events_max: usize,
    pub(crate) queued_bytes_max: usize,
    pub(crate) batch_events_max: usize,
    /// Larger batches are split. One event is a batch, whatever its size.
    pub(crate) batch_bytes_max: usize,
    /// A batch waits so long for more events.
    pub(crate) wait: Duration,
    /// Batches that are sent at the same time.
    pub(crate) concurrency: usize,
    /// Batches per second, and how many at once after a quiet time.
    pub(crate) throttle: Option<(f32, u32)>,
}

/// Compat: kube-apiserver bounds the number of queued events only; with bodies, 10 000 of them may
/// be tens of gigabytes. Beyond this, events are dropped and counted.
const QUEUED_BYTES_MAX: usize = 256 << 20;

/// Compat: kube-apiserver starts a goroutine per batch without a bound. When all of these wait for a
/// webhook, the queue fills up.
const WEBHOOK_CONCURRENCY: usize = 16;

/// The log writes what has come within this time by one call. Without it, every event would wake
/// the task.
const LOG_WAIT: Duration = Duration::from_millis(2);
const LOG_EVENTS_MAX: usize = 1024;

impl BatchLimits {
    pub(crate) fn new(options: &DeliveryOptions, output: &Output, batch_bytes: usize) -> Self {
        let positive = |number: i64| usize::try_from(number).unwrap_or(1).max(1);
        let throttle = options
            .throttle_enable
            .then(|| (options.throttle_qps, u32::try_from(options.throttle_burst).unwrap_or(1)));
        let mut limits = Self {
            queued_events_max: positive(options.buffer_size),
            queued_bytes_max: QUEUED_BYTES_MAX,
            batch_events_max: positive(options.max_batch_size),
            batch_bytes_max: batch_bytes,
            wait: options.max_batch_wait,
            concurrency: 1,
            throttle,
        };
        match output {
            Output::Webhook(_) => limits.concurrency = WEBHOOK_CONCURRENCY,
            // Lines look the same, however many of them are written at once.
            Output::Log(_) if throttle.is_none() && limits.batch_events_max == 1 => {
                limits.batch_events_max = LOG_EVENTS_MAX;
                limits.wait = LOG_WAIT;
            }
            Output::Log(_) => {}
        }
        limits
    }
}

#[derive(Default)]
struct State {
    events: VecDeque<Vec<u8>>,
    /// Of events in the queue and under way.
    bytes: usize,
    closed: bool,
    /// The task waits to be woken.
    idle: bool,
}

/// Why an event is not in the queue. Compat: kube-apiserver's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Full,
    Closed,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Full => "audit buffer queue blocked",
            Self::Closed => "audit backend shut down",
        })
    }
}

impl Queue {
    pub(crate) fn new(limits: BatchLimits) -> Self {
        let (state, changed) = (Mutex::default(), Notify::new());
        let (under_way, drained) = (AtomicUsize::new(0), watch::Sender::new(false));
        Self { limits, state, changed, under_way, drained }
    }

    /// Never waits.
    pub(crate) fn push(&self, event: Vec<u8>) -> Result<(), Refused> {
        let wake = {
            let mut state = self.state.lock();
            if state.closed {
                return Err(Refused::Closed);
            }
            if state.events.len() >= self.limits.queued_events_max
                || state.bytes + event.len() > self.limits.queued_bytes_max
            {
                return Err(Refused::Full);
            }
            state.bytes += event.len();
            state.events.push_back(event);
            let full = state.events.len() == self.limits.batch_events_max;
            full || std::mem::take(&mut state.idle)
        };
        if wake {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// No more events are taken; those that are queued are sent without further waiting.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_one();
    }

    /// Resolves when the queue is closed and all events were sent.
    pub(crate) async fn drained(&self) {
        // The sender lives as long as this queue.
        let _ = self.drained.subscribe().wait_for(|drained| *drained).await;
    }

    /// Events that have not reached the backend.
    pub(crate) fn pending(&self) -> usize {
        self.state.lock().events.len() + self.under_way.load(Ordering::Relaxed)
    }

    /// The next batch; None: the queue is closed and empty.
    async fn batch(&self) -> Option<Vec<Vec<u8>>> {
        let mut full_at = None;
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.state.lock();
                if state.events.is_empty() {
                    if state.closed {
                        return None;
                    }
                    state.idle = true;
                    full_at = None;
                } else {
                    let waited = *full_at.get_or_insert_with(|| Instant::now() + self.limits.wait);
                    if state.closed
                        || state.events.len() >= self.limits.batch_events_max
                        || waited <= Instant::now()
                    {
                        return Some(self.take(&mut state));
                    }
                }
            }
            match full_at {
                None => changed.await,
                Some(full_at) => {
                    let _ = tokio::time::timeout_at(full_at, changed).await;
                }
            }
        }
    }

    fn take(&self, state: &mut State) -> Vec<Vec<u8>> {
        let mut bytes = 0;
        let fits = |event: &&Vec<u8>| {
            bytes += event.len();
            bytes <= self.limits.batch_bytes_max
        };
        let count = state.events.iter().take(self.limits.batch_events_max).take_while(fits).count();
        let batch: Vec<_> = state.events.drain(..count.max(1)).collect();
        self.under_way.fetch_add(batch.len(), Ordering::Relaxed);
        batch
    }

    fn sent(&self, events: usize, bytes: usize) {
        self.under_way.fetch_sub(events, Ordering::Relaxed);
        self.state.lock().bytes -= bytes;
    }
}

/// Starts to send the batches of a queue, until it is closed and empty.
pub(crate) fn start(
    queue: Arc<Queue>,
    output: Arc<Output>,
    metrics: AuditMetrics,
    tasks: &Tasks,
) -> AbortHandle {
    let sending = tasks.clone();
    tasks.restarting("audit-batches", move || {
        send_batches(queue.clone(), output.clone(), metrics.clone(), sending.clone())
    })
}

async fn send_batches(queue: Arc<Queue>, output: Arc<Output>, metrics: AuditMetrics, tasks: Tasks) {
    let concurrency = queue.limits.concurrency;
    let permits = Arc::new(Semaphore::new(concurrency));
    let mut throttle = queue.limits.throttle.map(|(qps, burst)| Throttle::new(qps, burst));
    while let Some(batch) = queue.batch().await {
        let under_way = UnderWay::new(&queue, &output, &metrics, &batch);
        if let Some(throttle) = &mut throttle {
            throttle.accept().await;
        }
        let permit = permits.clone().acquire_owned().await.expect("never closed");
        let (output, metrics) = (output.clone(), metrics.clone());
        tasks.once("audit-batch", async move {
            let _permit = permit;
            if let Err(why) = output.send(batch).await {
                metrics.failed(output.plugin(), under_way.events, &why);
            }
            drop(under_way);
        });
    }
    let all = u32::try_from(concurrency).expect("a small number");
    let _ = permits.acquire_many(all).await;
    queue.drained.send_replace(true);
}

/// A batch that was taken from the queue. A panic loses it, and is counted; the memory that the queue
/// may use is free again however it ends.
struct UnderWay {
    queue: Arc<Queue>,
    output: Arc<Output>,
    metrics: AuditMetrics,
    events: usize,
    bytes: usize,
}

impl UnderWay {
    fn new(
        queue: &Arc<Queue>,
        output: &Arc<Output>,
        metrics: &AuditMetrics,
        batch: &[Vec<u8>],
    ) -> Self {
        let (queue, output, metrics) = (queue.clone(), output.clone(), metrics.clone());
        let bytes = batch.iter().map(Vec::len).sum();
        Self { queue, output, metrics, events: batch.len(), bytes }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.metrics.failed(self.output.plugin(), self.events, &"the task panicked");
        }
        self.queue.sent(self.events, self.bytes);
    }
}

/// A token bucket.
struct Throttle {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled: Instant,
}

impl Throttle {
    fn new(qps: f32, burst: u32) -> Self {
        let burst = f64::from(burst);
        Self { per_second: f64::from(qps), burst, tokens: burst, filled: Instant::now() }
    }

    async fn accept(&mut self) {
        loop {
            let now = Instant::now();
            let new = now.duration_since(self.filled).as_secs_f64() * self.per_second;
            self.tokens = (self.tokens + new).min(self.burst);
            self.filled = now;
            if self.tokens >= 1.0 {
                self.tokens -= 1.0;
                return;
            }
            let missing = (1.0 - self.tokens) / self.per_second;
            let wait = Duration::try_from_secs_f64(missing).unwrap_or(THROTTLE_WAIT_MAX);
            tokio::time::sleep(wait.clamp(Duration::from_millis(1), THROTTLE_WAIT_MAX)).await;
        }
    }
}

/// A rate may be so small that the wait does not fit a duration.
const THROTTLE_WAIT_MAX: Duration = Duration::from_hours(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> BatchLimits {
        BatchLimits {
            queued_events_max: 5,
            queued_bytes_max: 100,
            batch_events_max: 3,
            batch_bytes_max: 50,
            wait: Duration::from_secs(30),
            concurrency: 1,
            throttle: None,
        }
    }

    fn sizes(batch: Option<Vec<Vec<u8>>>) -> Option<Vec<usize>> {
        batch.map(|batch| batch.iter().map(Vec::len).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_ends_when_it_is_full_or_has_waited() {
        let queue = Queue::new(limits());
        let began = Instant::now();
        for _ in 0..4 {
            queue.push(vec![0; 10]).unwrap();
        }
        assert_eq!(sizes(queue.batch().await), Some(vec![10; 3]));
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert_eq!(sizes(queue.batch().await), Some(vec![10]));
        assert_eq!(began.elapsed(), Duration::from_secs(30));
        // Two of these are larger than a batch, and one is a batch of its own.
        queue.sent(4, 40);
        for bytes in [30, 30, 1] {
            queue.push(vec![0; bytes]).unwrap();
        }
        assert_eq!(sizes(queue.batch().await), Some(vec![30]));
        queue.close();
        assert_eq!(sizes(queue.batch().await), Some(vec![30, 1]));
        assert_eq!(sizes(queue.batch().await), None);
        assert_eq!(began.elapsed(), Duration::from_secs(30));
        assert_eq!(queue.push(Vec::new()), Err(Refused::Closed));
        assert_eq!(queue.pending(), 3);
    }

    #[tokio::test]
    async fn a_full_queue_refuses_events_by_number_and_by_size() {
        let queue = Queue::new(limits());
        for _ in 0..5 {
            queue.push(vec![0; 1]).unwrap();
        }
        assert_eq!(queue.push(vec![0; 1]), Err(Refused::Full));
        // Events under way count as long as they are in memory.
        assert_eq!(sizes(queue.batch().await), Some(vec![1; 3]));
        assert_eq!(queue.push(vec![0; 96]), Err(Refused::Full));
        queue.sent(3, 3);
        assert_eq!(queue.push(vec![0; 96]), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_task_is_woken() {
        let queue = Arc::new(Queue::new(BatchLimits { wait: Duration::ZERO, ..limits() }));
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { sizes(queue.batch().await) }
        });
        tokio::task::yield_now().await;
        queue.push(vec![0; 7]).unwrap();
        assert_eq!(waiting.await.unwrap(), Some(vec![7]));
    }

    #[tokio::test(start_paused = true)]
    async fn batches_are_throttled_after_a_burst() {
        let began = Instant::now();
        let mut throttle = Throttle::new(10.0, 3);
        for _ in 0..3 {
            throttle.accept().await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        for _ in 0..10 {
            throttle.accept().await;
        }
        let waited = began.elapsed();
        assert!((995..1015).contains(&waited.as_millis()), "{waited:?}");
    }
}
