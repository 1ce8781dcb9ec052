//! A loop that attends to objects one by one: each by one at a time, several side by side, and again
//! later what failed or has to wait.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use meta::{ApiError, Str};
use tokio::time::Instant;

use crate::{Informer, InformerEvent, ObjectEvent, Pinned};

/// An object by namespace and name.
pub(crate) type Key = (Str, Str);

/// What a loop does.
pub(crate) trait Reconciler: Send + Sync + 'static {
    /// Whom a change concerns.
    fn keys_for(&self, event: &ObjectEvent) -> Vec<Key>;

    /// Looks at one object and does what is due.
    fn reconcile<'a>(&'a self, key: &'a Key) -> Pinned<'a, Result<ReconcileResult, ApiError>>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReconcileResult {
    /// Nothing to do until it changes.
    Done,
    /// Not before that time, unless it changes.
    RequeueAfter(Duration),
    /// Somebody else has to act first: looked at less and less often.
    Requeue,
}

/// Side by side, so that their writes share an fsync.
const WORKERS: usize = 16;
const RETRY_MIN: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Works until the server stops. What waits is bounded by the number of objects.
pub(crate) async fn run(reconciler: impl Reconciler, mut changes: impl Informer) {
    let reconciler = &reconciler;
    let mut queue = WorkQueue::default();
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < WORKERS
            && let Some(key) = queue.get()
        {
            running.push(async move {
                let done = reconciler.reconcile(&key).await;
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
            change = changes.next() => match change {
                None => return,
                // What is there is told again.
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
    /// Being looked at; true: and has to be again.
    processing: HashMap<Key, bool>,
    delayed: HashMap<Key, Instant>,
    /// How often in a row each of them came to nothing.
    attempts: HashMap<Key, u32>,
}

impl WorkQueue {
    fn add(&mut self, key: Key) {
        self.delayed.remove(&key);
        if let Some(again) = self.processing.get_mut(&key) {
            *again = true;
        } else if self.queued.insert(key.clone()) {
            self.queue.push_back(key);
        }
    }

    fn get(&mut self) -> Option<Key> {
        let key = self.queue.pop_front()?;
        self.queued.remove(&key);
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
                // A lost race is no news.
                if !matches!(error, ApiError::Conflict { .. }) {
                    tracing::debug!(namespace = %key.0, name = %key.1, "not settled yet: {error}");
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
    fn an_object_is_attended_to_by_one_at_a_time_and_again_when_it_changed_meanwhile() {
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
    fn what_fails_is_tried_again_ever_later_and_at_once_when_it_changes() {
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
