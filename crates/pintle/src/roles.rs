//! The index of roles and bindings that RBAC decides by, kept current by the watch caches. Requests
//! read it without a lock. The write of a role or a binding is answered when the index has it: a
//! right that was taken away is gone for the next request.

use std::{collections::HashSet, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use auth::authz::rbac::{Index, Roles, Rule};
use meta::Str;
use parking_lot::Mutex;
use registry::{Follower, Kind, Pinned, Storage};
use serve::Tasks;
use store::{Entry, EventKind, WatchItem};
use tokio::sync::watch;

use crate::in_process::tree;

pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

#[derive(Default)]
pub(crate) struct RoleIndex {
    current: ArcSwap<Index>,
    /// The same, for those who change it, one after the other.
    next: Mutex<Index>,
}

impl Roles for RoleIndex {
    fn current(&self) -> Arc<Index> {
        self.current.load_full()
    }
}

impl RoleIndex {
    /// Reads what there is, and follows it from then on. The caches are filled.
    pub(crate) fn follow(self: &Arc<Self>, kinds: &[Arc<Kind>], tasks: &Tasks) {
        for kind in kinds.iter().filter(|kind| kind.gvk().group == GROUP) {
            let Some(storage) = kind.storage.clone() else { continue };
            let is_binding = kind.gvk().kind.ends_with("Binding");
            let (reached, _) = watch::channel(0);
            storage.follow(Arc::new(Reached(reached.clone())));
            let mut part = Part { roles: self.clone(), is_binding, known: HashSet::new(), reached };
            part.read(&storage);
            // It ends with the process only: a frozen index grants rights that were taken away.
            tasks.critical("role-index", part.run(storage));
        }
    }

    fn publish(&self, change: impl FnOnce(&mut Index)) {
        let mut next = self.next.lock();
        change(&mut next);
        self.current.store(Arc::new(next.clone()));
    }
}

/// One of the four kinds.
struct Part {
    roles: Arc<RoleIndex>,
    is_binding: bool,
    /// Namespace and name of what is in the index.
    known: HashSet<(Str, Str)>,
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
                            let changes = events.iter();
                            self.take(
                                changes
                                    .map(|event| (&*event.entry, event.kind == EventKind::Deleted)),
                            );
                            self.reached.send_replace(last);
                        }
                        WatchItem::Progress(_) => {}
                        WatchItem::TooSlow | WatchItem::Expired => break,
                        WatchItem::Closed => {
                            // The waiter is gone.
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
        let there: HashSet<(Str, Str)> =
            entries.iter().map(|entry| (entry.namespace.clone(), entry.name.clone())).collect();
        let gone: Vec<Entry> = self
            .known
            .difference(&there)
            .map(|(namespace, name)| Entry {
                namespace: namespace.clone(),
                name: name.clone(),
                ..Entry::default()
            })
            .collect();
        let entries = entries.into_iter().map(|entry| (&**entry, false));
        self.take(entries.chain(gone.iter().map(|entry| (entry, true))));
        self.reached.send_replace(snapshot.revision);
    }

    fn take<'a>(&mut self, changes: impl Iterator<Item = (&'a Entry, bool)>) {
        let (known, is_binding) = (&mut self.known, self.is_binding);
        self.roles.publish(|index| {
            for (entry, gone) in changes {
                let key = (entry.namespace.clone(), entry.name.clone());
                let _ = if gone { known.remove(&key) } else { known.insert(key) };
                // What cannot be read gives no rights.
                let object = if gone { None } else { tree(entry).ok() };
                let (namespace, name) = (&entry.namespace, &entry.name);
                if is_binding {
                    index.set_binding(namespace, name, object.as_ref());
                } else {
                    index.set_role(namespace, name, object.as_ref().map(Rule::all_of));
                }
            }
        });
    }
}

/// Lets writers wait for the index.
struct Reached(watch::Sender<u64>);

/// A write waits no longer than this: it is done, and the index will follow.
const WAIT_MAX: Duration = Duration::from_secs(3);

impl Follower for Reached {
    fn reached(&self, revision: u64) -> Pinned<'_, ()> {
        let mut now = self.0.subscribe();
        Box::pin(async move {
            let wait = now.wait_for(|now| *now >= revision);
            if tokio::time::timeout(WAIT_MAX, wait).await.is_err() {
                tracing::warn!(revision, "the index of roles is behind");
            }
        })
    }
}
