//! kube-controller-manager's garbage-collector-controller: deletes the dependents of deleted objects
//! by `ownerReferences`, in the background or foreground, or orphans them.

mod graph;
mod reconcile;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use meta::{ApiError, Str};

use self::{
    graph::{Graph, Object},
    reconcile::{Reconciled, reconcile},
};
use crate::{ApiClient, BoxFuture, Informer, InformerEvent};

pub struct GarbageCollector {
    pub api: Arc<dyn ApiClient>,
}

/// Concurrent reconciliations, so that their writes share an fsync.
const WORKERS: usize = 32;
const RETRY_MIN: Duration = Duration::from_millis(10);
/// Upper bound of the exponential backoff.
const RETRY_MAX: Duration = Duration::from_mins(1);

impl GarbageCollector {
    /// Runs until the server stops. `events` are events of objects that have owners or are being
    /// deleted, and all deletions.
    pub async fn run(self, mut events: impl Informer) {
        let mut work = DeletionQueue::default();
        loop {
            while work.running.len() < WORKERS {
                let Some(object) = work.queue.pop_front() else { break };
                work.begin(&self.api, object);
            }
            tokio::select! {
                change = events.next() => match change {
                    None => return,
                    Some(InformerEvent::Relisted) => {
                        let uncertain = work.graph.invalidate_owners();
                        work.enqueue(uncertain);
                    }
                    Some(InformerEvent::Object(event)) => {
                        let requeue = work.graph.observe(&event);
                        work.enqueue(requeue);
                    }
                },
                Some((object, done)) = work.running.next() => work.end(object, done),
                Some(object) = work.backing_off.next() => work.enqueue(vec![object]),
            }
        }
    }
}

#[derive(Default)]
struct DeletionQueue {
    graph: Graph,
    queue: VecDeque<Object>,
    /// The UIDs in `queue`.
    queued: HashSet<Str>,
    /// UIDs that are being reconciled; true if the object was enqueued again meanwhile.
    processing: HashMap<Str, bool>,
    running: FuturesUnordered<BoxFuture<'static, (Object, Result<Reconciled, ApiError>)>>,
    /// Failed objects that wait for their backoff.
    backing_off: FuturesUnordered<BoxFuture<'static, Object>>,
    /// Consecutive failures by UID.
    failures: HashMap<Str, u32>,
}

impl DeletionQueue {
    fn enqueue(&mut self, objects: Vec<Object>) {
        for object in objects {
            if let Some(again) = self.processing.get_mut(&object.uid) {
                *again = true;
            } else if self.queued.insert(object.uid.clone()) {
                self.queue.push_back(object);
            }
        }
    }

    fn begin(&mut self, api: &Arc<dyn ApiClient>, object: Object) {
        self.queued.remove(&object.uid);
        self.processing.insert(object.uid.clone(), false);
        let dependents = self.graph.dependents_of(&object.uid);
        let api = api.clone();
        self.running.push(Box::pin(async move {
            let done = reconcile(&*api, &object, dependents).await;
            (object, done)
        }));
    }

    fn end(&mut self, object: Object, done: Result<Reconciled, ApiError>) {
        let again = self.processing.remove(&object.uid).unwrap_or_default();
        match done {
            Ok(reconciled) => {
                self.failures.remove(&object.uid);
                for owner in &reconciled.present_owners {
                    self.graph.record_present(owner, &object.namespace);
                }
                self.enqueue(reconciled.requeue);
                if again {
                    self.enqueue(vec![object]);
                }
            }
            Err(error) => self.retry(object, &error),
        }
        if self.running.is_empty() {
            self.graph.forget_departed();
        }
    }

    fn retry(&mut self, object: Object, error: &ApiError) {
        let failures = self.failures.entry(object.uid.clone()).or_default();
        *failures += 1;
        let wait = RETRY_MIN.saturating_mul(1 << (*failures).min(16)).min(RETRY_MAX);
        // A conflict is expected: the next attempt reads the current object.
        if !matches!(error, ApiError::Conflict { .. }) {
            let (namespace, name) = (&object.namespace, &object.name);
            tracing::debug!(%namespace, %name, "cannot reconcile owner references yet: {error}");
        }
        self.backing_off.push(Box::pin(async move {
            tokio::time::sleep(wait).await;
            object
        }));
    }
}
