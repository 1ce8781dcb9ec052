//! A work queue as client-go's: a key is processed by one worker at a time, several keys
//! concurrently, and failed or delayed keys are added again later.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use meta::{ApiError, Str};
use tokio::time::Instant;

use crate::{BoxFuture, Informer, InformerEvent, ObjectEvent, workqueue_metrics::QueueMetrics};

/// Namespace and name of an object.
pub type Key = (Str, Str);

/// A controller that is driven by the queue.
pub trait Reconciler: Send + Sync + 'static {
    /// The name of its queue in metrics: kube-controller-manager's.
    const QUEUE: &'static str;

    /// The keys that an event adds to the queue.
    fn keys_for(&self, event: &ObjectEvent) -> Vec<Key>;

    /// Brings one object to its desired state.
    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<ReconcileResult, ApiError>>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileResult {
    /// Nothing to do until the next event.
    Done,
    /// Again after this time, or with the next event.
    RequeueAfter(Duration),
    /// Again with exponential backoff: another client has to act first.
    Requeue,
}

/// Concurrent reconciliations, so that their writes share an fsync.
const WORKERS: usize = 16;
const RETRY_MIN: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Runs until the server stops. The queue is bounded by the number of objects.
pub async fn run<R: Reconciler>(reconciler: R, mut events: impl Informer) {
    let reconciler = &reconciler;
    let metrics = QueueMetrics::of(R::QUEUE);
    let mut queue = WorkQueue { metrics: metrics.clone(), ..WorkQueue::default() };
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < WORKERS
            && let Some(key) = queue.get()
        {
            let metrics = metrics.clone();
            running.push(async move {
                let began = Instant::now();
                let _working = metrics.working();
                let done = reconciler.reconcile(&key).await;
                metrics.worked(began.elapsed());
                (key, done)
            });
        }
        let due = queue.next_deadline();
        let sleep = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            change = events.next() => match change {
                None => return,
                // Every object is reported again.
                Some(InformerEvent::Relisted) => {}
                Some(InformerEvent::Object(event)) => {
                    for key in reconciler.keys_for(&event) {
                        queue.add(key);
                    }
                }
            },
            Some((key, done)) = running.next() => queue.done(key, done, Instant::now()),
            () = sleep => queue.requeue_due(Instant::now()),
        }
    }
}

#[derive(Default)]
struct WorkQueue {
    queue: VecDeque<Key>,
    queued: HashSet<Key>,
    /// Keys that a worker has; true if the key was added again meanwhile.
    processing: HashMap<Key, bool>,
    delayed: HashMap<Key, Instant>,
    /// Consecutive failures and requeues of a key.
    attempts: HashMap<Key, u32>,
    /// When a queued key was added.
    added: HashMap<Key, Instant>,
    metrics: QueueMetrics,
}

impl WorkQueue {
    fn add(&mut self, key: Key) {
        self.delayed.remove(&key);
        if let Some(again) = self.processing.get_mut(&key) {
            *again = true;
        } else if self.queued.insert(key.clone()) {
            self.metrics.added(self.queue.len() + 1);
            self.added.insert(key.clone(), Instant::now());
            self.queue.push_back(key);
        }
    }

    fn get(&mut self) -> Option<Key> {
        let key = self.queue.pop_front()?;
        self.queued.remove(&key);
        let waited = self.added.remove(&key).map(|added| added.elapsed()).unwrap_or_default();
        self.metrics.taken(waited, self.queue.len());
        self.processing.insert(key.clone(), false);
        Some(key)
    }

    fn done(&mut self, key: Key, done: Result<ReconcileResult, ApiError>, now: Instant) {
        let again = self.processing.remove(&key).unwrap_or_default();
        let wait = match done {
            Ok(ReconcileResult::Done) | Err(ApiError::NotFound { .. }) => {
                self.attempts.remove(&key);
                None
            }
            Ok(ReconcileResult::RequeueAfter(time)) => Some(time),
            Ok(ReconcileResult::Requeue) => Some(self.backoff(&key)),
            Err(error) => {
                // A conflict is expected: the next attempt reads the current object.
                if !matches!(error, ApiError::Conflict { .. }) {
                    tracing::debug!(namespace = %key.0, name = %key.1, "not reconciled yet: {error}");
                }
                Some(self.backoff(&key))
            }
        };
        if again {
            self.add(key);
        } else if let Some(wait) = wait {
            self.delayed.insert(key, now + wait);
        }
    }

    fn backoff(&mut self, key: &Key) -> Duration {
        self.metrics.retried();
        let attempts = self.attempts.entry(key.clone()).or_default();
        *attempts = attempts.saturating_add(1);
        RETRY_MIN.saturating_mul(1 << (*attempts).min(16)).min(RETRY_MAX)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.delayed.values().min().copied()
    }

    fn requeue_due(&mut self, now: Instant) {
        let due = self.delayed.iter().filter(|(_, due)| **due <= now);
        let due: Vec<Key> = due.map(|(key, _)| key.clone()).collect();
        for key in due {
            self.add(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        ("n".into(), name.into())
    }

    #[test]
    fn a_key_is_processed_by_one_worker_and_again_if_added_meanwhile() {
        let mut queue = WorkQueue::default();
        queue.add(key("a"));
        queue.add(key("a"));
        assert_eq!(queue.get(), Some(key("a")));
        assert_eq!(queue.get(), None);
        queue.add(key("a"));
        assert_eq!(queue.get(), None);
        queue.done(key("a"), Ok(ReconcileResult::Done), Instant::now());
        assert_eq!(queue.get(), Some(key("a")));
        queue.done(key("a"), Ok(ReconcileResult::Done), Instant::now());
        assert_eq!(queue.get(), None);
    }

    #[test]
    fn failures_back_off_exponentially_and_an_event_retries_at_once() {
        let mut queue = WorkQueue::default();
        let now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..12 {
            queue.add(key("a"));
            queue.get();
            queue.done(key("a"), Err(ApiError::internal("no")), now);
            waits.push(queue.next_deadline().unwrap() - now);
        }
        assert_eq!(waits[..3], [20, 40, 80].map(Duration::from_millis));
        assert_eq!(waits[11], RETRY_MAX);
        queue.requeue_due(now);
        assert_eq!(queue.get(), None);
        queue.requeue_due(now + RETRY_MAX);
        assert_eq!(queue.get(), Some(key("a")));
        queue.done(key("a"), Ok(ReconcileResult::RequeueAfter(Duration::from_mins(1))), now);
        queue.add(key("a"));
        assert_eq!((queue.get(), queue.next_deadline()), (Some(key("a")), None));
        // Success starts the count anew.
        queue.done(key("a"), Ok(ReconcileResult::Done), now);
        queue.add(key("a"));
        queue.get();
        queue.done(key("a"), Ok(ReconcileResult::Requeue), now);
        assert_eq!(queue.next_deadline(), Some(now + Duration::from_millis(20)));
    }
}
