//! State that requests are decided by and that is derived from the objects of a kind: the role index,
//! the compiled webhooks and policies. It follows the kind's watch cache, and a write is answered when
//! the state has it, so that the next request is decided by it.

use std::{collections::HashSet, sync::Arc, time::Duration};

use meta::Str;
use registry::{BoxFuture, Follower, Storage};
use store::{Entry, EventKind, WatchItem};
use tokio::sync::watch;

pub(crate) trait DerivedState: Send + 'static {
    /// For the log.
    const NAME: &'static str;

    /// Applies changes in order. A deleted object has its namespace and name only.
    fn apply(&mut self, changes: &mut dyn Iterator<Item = Change<'_>>);
}

pub(crate) struct Change<'a> {
    pub(crate) entry: &'a Entry,
    pub(crate) deleted: bool,
}

/// Applies what the cache has, before it returns, and then every change, until the cache ends.
pub(crate) fn follow<S: DerivedState>(
    storage: Arc<Storage>,
    state: S,
) -> impl Future<Output = ()> + Send {
    let (reached, _) = watch::channel(0);
    storage.follow(Arc::new(Reached { name: S::NAME, revision: reached.clone() }));
    let mut follower = CacheFollower { state, known: HashSet::new(), reached };
    follower.read(&storage);
    follower.run(storage)
}

struct CacheFollower<S> {
    state: S,
    /// Namespace and name of the objects that the state has.
    known: HashSet<(Str, Str)>,
    reached: watch::Sender<u64>,
}

/// How long to wait for a cache that starts anew.
const RETRY: Duration = Duration::from_millis(50);

impl<S: DerivedState> CacheFollower<S> {
    async fn run(mut self, storage: Arc<Storage>) {
        loop {
            let from = *self.reached.borrow();
            if let Ok(mut watcher) = storage.cache.watch(from, None) {
                loop {
                    match watcher.next().await {
                        WatchItem::Events(events) => {
                            let last = events.last().map_or(0, |event| event.revision);
                            self.apply(events.iter().map(|event| Change {
                                entry: &event.entry,
                                deleted: event.kind == EventKind::Deleted,
                            }));
                            self.reached.send_replace(last);
                        }
                        WatchItem::Progress(_) => {}
                        WatchItem::TooSlow | WatchItem::Expired => break,
                        WatchItem::Closed => {
                            // Writes that wait for a revision need not wait any longer.
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

    /// Applies the whole cache, and deletes what it no longer has.
    fn read(&mut self, storage: &Storage) {
        let snapshot = storage.cache.snapshot();
        let entries: Vec<&Arc<Entry>> = snapshot.range(&storage.prefix, None).collect();
        let listed: HashSet<(Str, Str)> = entries.iter().map(|entry| key(entry)).collect();
        let deleted = self.known.difference(&listed).cloned();
        let deleted: Vec<Entry> = deleted
            .map(|(namespace, name)| Entry { namespace, name, ..Entry::default() })
            .collect();
        let entries = entries.into_iter().map(|entry| Change { entry, deleted: false });
        let deleted = deleted.iter().map(|entry| Change { entry, deleted: true });
        self.apply(entries.chain(deleted));
        self.reached.send_replace(snapshot.revision);
    }

    fn apply<'a>(&mut self, changes: impl Iterator<Item = Change<'a>>) {
        let Self { state, known, .. } = self;
        state.apply(&mut changes.inspect(|change| {
            let key = key(change.entry);
            let _ = if change.deleted { known.remove(&key) } else { known.insert(key) };
        }));
    }
}

fn key(entry: &Entry) -> (Str, Str) {
    (entry.namespace.clone(), entry.name.clone())
}

/// Lets writers wait for the state.
struct Reached {
    name: &'static str,
    revision: watch::Sender<u64>,
}

/// A write waits no longer than this: it is done, and its effect will follow.
const WAIT_MAX: Duration = Duration::from_secs(3);

impl Follower for Reached {
    fn reached(&self, revision: u64) -> BoxFuture<'_, ()> {
        let mut now = self.revision.subscribe();
        Box::pin(async move {
            let wait = now.wait_for(|now| *now >= revision);
            if tokio::time::timeout(WAIT_MAX, wait).await.is_err() {
                tracing::warn!(revision, "{} is behind its watch cache", self.name);
            }
        })
    }
}
