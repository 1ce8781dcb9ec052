//! Keeps the compiled webhooks and policies current by the watch caches. The write of a configuration
//! is answered when it counts: the next request sees it.

use std::{collections::HashSet, sync::Arc, time::Duration};

use admission::{DynamicAdmission, DynamicChange, DynamicKind};
use meta::Str;
use registry::{Follower, Kind, Pinned, Storage};
use serve::Tasks;
use store::{Entry, EventKind, WatchItem};
use tokio::sync::watch;

use crate::in_process::tree;

const GROUP: &str = "admissionregistration.k8s.io";

/// Reads what there is, and follows it from then on. The caches are filled.
pub(crate) fn follow(dynamic: &Arc<DynamicAdmission>, kinds: &[Arc<Kind>], tasks: &Tasks) {
    for kind in DynamicKind::ALL {
        let mut served = kinds.iter();
        let served = served.find(|own| own.gvk().group == GROUP && own.gvk().kind == kind.as_str());
        let Some(storage) = served.and_then(|own| own.storage.clone()) else {
            // `--runtime-config` has turned it off.
            dynamic.skip(kind);
            continue;
        };
        let (reached, _) = watch::channel(0);
        storage.follow(Arc::new(Reached(reached.clone())));
        let mut part = Part { dynamic: dynamic.clone(), kind, known: HashSet::new(), reached };
        part.read(&storage);
        // Frozen rules would let pass what they are there to refuse.
        tasks.critical("dynamic-admission", part.run(storage));
    }
}

/// One of the kinds.
struct Part {
    dynamic: Arc<DynamicAdmission>,
    kind: DynamicKind,
    /// The names of those that are compiled.
    known: HashSet<Str>,
    reached: watch::Sender<u64>,
}

/// How long to wait for a cache that starts anew.
const RETRY: Duration = Duration::from_millis(50);

impl Part {
    async fn run(mut self, storage: Arc<Storage>) {
        loop {
            let from = *self.reached.borrow();
            if let Ok(mut watcher) = storage.cache.watch(from, None) {
                loop {
                    match watcher.next().await {
                        WatchItem::Events(events) => {
                            let last = events.last().map_or(0, |event| event.revision);
                            self.take(
                                events
                                    .iter()
                                    .map(|event| (&*event.entry, event.kind == EventKind::Deleted)),
                            );
                            self.reached.send_replace(last);
                        }
                        WatchItem::Progress(_) => {}
                        WatchItem::TooSlow | WatchItem::Expired => break,
                        WatchItem::Closed => {
                            // A write that waits for it is notified at once.
                            self.reached.send_replace(u64::MAX);
                            return;
                        }
                    }
                }
            }
            tokio::time::sleep(RETRY).await;
            self.read(&storage);
        }
    }

    /// Takes over what the cache has now; what it has no more goes.
    fn read(&mut self, storage: &Storage) {
        let snapshot = storage.cache.snapshot();
        let entries: Vec<&Arc<Entry>> = snapshot.range(&storage.prefix, None).collect();
        let there: HashSet<Str> = entries.iter().map(|entry| entry.name.clone()).collect();
        let gone = self.known.difference(&there);
        let gone: Vec<Entry> =
            gone.map(|name| Entry { name: name.clone(), ..Entry::default() }).collect();
        let entries = entries.into_iter().map(|entry| (&**entry, false));
        self.take(entries.chain(gone.iter().map(|entry| (entry, true))));
        self.reached.send_replace(snapshot.revision);
    }

    fn take<'a>(&mut self, changes: impl Iterator<Item = (&'a Entry, bool)>) {
        let mut taken: Vec<DynamicChange> = Vec::new();
        for (entry, gone) in changes {
            let object = if gone { None } else { Some(tree(entry)) };
            match object {
                None => {
                    self.known.remove(&entry.name);
                    taken.push((entry.name.clone(), None));
                }
                Some(Ok(object)) => {
                    self.known.insert(entry.name.clone());
                    taken.push((entry.name.clone(), Some(object)));
                }
                // What was compiled before stays: dropping it could let requests through.
                Some(Err(error)) => {
                    tracing::error!(name = %entry.name, kind = self.kind.as_str(), %error,
                        "an admission configuration cannot be read");
                }
            }
        }
        self.dynamic.apply(self.kind, taken);
    }
}

/// Lets writers wait until a configuration counts.
struct Reached(watch::Sender<u64>);

/// A write waits no longer than this: it is done, and its effect will follow.
const WAIT_MAX: Duration = Duration::from_secs(3);

impl Follower for Reached {
    fn reached(&self, revision: u64) -> Pinned<'_, ()> {
        let mut now = self.0.subscribe();
        Box::pin(async move {
            let wait = now.wait_for(|now| *now >= revision);
            if tokio::time::timeout(WAIT_MAX, wait).await.is_err() {
                tracing::warn!(revision, "webhooks and policies are behind");
            }
        })
    }
}
