//! A loop that attends to objects one by one: each by one at a time, several side by side, and again
//! later what failed or has to wait.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use meta::{ApiError, Str};
use tokio::time::Instant;

use crate::{Change, Informer, ObjectEvent, Pinned};

/// An object by namespace and name.
pub(crate) type Key = (Str, Str);

/// What a loop does.
pub(crate) trait Reconciler: Send + Sync + 'static {
    /// Whom a change concerns.
    fn keys_for(&self, seen: &ObjectEvent) -> Vec<Key>;

    /// Looks at one object and does what is due.
    fn reconcile<'a>(&'a self, key: &'a Key) -> Pinned<'a, Result<Next, ApiError>>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing to do until it changes.
    Done,
    /// Not before that time, unless it changes.
    After(Duration),
    /// Somebody else has to act first: looked at less and less often.
    Waits,
}

/// Side by side, so that their writes share an fsync.
const AT_ONCE: usize = 16;
const RETRY_MIN: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Works until the server stops. What waits is bounded by the number of objects.
pub(crate) async fn run(work: impl Reconciler, mut changes: impl Informer) {
    let work = &work;
    let mut state = State::default();
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < AT_ONCE
            && let Some(key) = state.take()
        {
            running.push(async move {
                let done = work.reconcile(&key).await;
                (key, done)
            });
        }
        let due = state.next_due();
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
                Some(Change::Lost) => {}
                Some(Change::Seen(seen)) => {
                    for key in work.keys_for(&seen) {
                        state.add(key);
                    }
                }
            },
            Some((key, done)) = running.next() => state.end(key, done, Instant::now()),
            () = sleep => state.wake(Instant::now()),
        }
    }
}

#[derive(Default)]
struct State {
    queue: VecDeque<Key>,
    queued: HashSet<Key>,
    /// Being looked at; true: and has to be again.
    busy: HashMap<Key, bool>,
    waiting: HashMap<Key, Instant>,
    /// How often in a row each of them came to nothing.
    attempts: HashMap<Key, u32>,
}

impl State {
    fn add(&mut self, key: Key) {
        self.waiting.remove(&key);
        if let Some(again) = self.busy.get_mut(&key) {
            *again = true;
        } else if self.queued.insert(key.clone()) {
            self.queue.push_back(key);
        }
    }

    fn take(&mut self) -> Option<Key> {
        let key = self.queue.pop_front()?;
        self.queued.remove(&key);
        self.busy.insert(key.clone(), false);
        Some(key)
    }

    fn end(&mut self, key: Key, done: Result<Next, ApiError>, now: Instant) {
        let again = self.busy.remove(&key).unwrap_or_default();
        let wait = match done {
            Ok(Next::Done) | Err(ApiError::NotFound { .. }) => {
                self.attempts.remove(&key);
                None
            }
            Ok(Next::After(time)) => Some(time),
            Ok(Next::Waits) => Some(self.backoff(&key)),
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
            self.waiting.insert(key, now + wait);
        }
    }

    fn backoff(&mut self, key: &Key) -> Duration {
        let attempts = self.attempts.entry(key.clone()).or_default();
        *attempts = attempts.saturating_add(1);
        RETRY_MIN.saturating_mul(1 << (*attempts).min(16)).min(RETRY_MAX)
    }

    fn next_due(&self) -> Option<Instant> {
        self.waiting.values().min().copied()
    }

    fn wake(&mut self, now: Instant) {
        let due = self.waiting.iter().filter(|(_, due)| **due <= now);
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
        let mut state = State::default();
        state.add(key("a"));
        state.add(key("a"));
        assert_eq!(state.take(), Some(key("a")));
        assert_eq!(state.take(), None);
        state.add(key("a"));
        assert_eq!(state.take(), None);
        state.end(key("a"), Ok(Next::Done), Instant::now());
        assert_eq!(state.take(), Some(key("a")));
        state.end(key("a"), Ok(Next::Done), Instant::now());
        assert_eq!(state.take(), None);
    }

    #[test]
    fn what_fails_is_tried_again_ever_later_and_at_once_when_it_changes() {
        let mut state = State::default();
        let now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..12 {
            state.add(key("a"));
            state.take();
            state.end(key("a"), Err(ApiError::internal("no")), now);
            waits.push(state.next_due().unwrap() - now);
        }
        assert_eq!(waits[..3], [20, 40, 80].map(Duration::from_millis));
        assert_eq!(waits[11], RETRY_MAX);
        state.wake(now);
        assert_eq!(state.take(), None);
        state.wake(now + RETRY_MAX);
        assert_eq!(state.take(), Some(key("a")));
        state.end(key("a"), Ok(Next::After(Duration::from_mins(1))), now);
        state.add(key("a"));
        assert_eq!((state.take(), state.next_due()), (Some(key("a")), None));
        // Success starts the count anew.
        state.end(key("a"), Ok(Next::Done), now);
        state.add(key("a"));
        state.take();
        state.end(key("a"), Ok(Next::Waits), now);
        assert_eq!(state.next_due(), Some(now + Duration::from_millis(20)));
    }
}
