//! Changes of objects for controllers, taken from the watch caches. Nothing is decoded that nobody
//! asked for.

use std::{sync::Arc, time::Duration};

use controllers::{Change, Informer, ObjectEvent, Pinned, Resource};
use memchr::memmem;
use meta::Value;
use registry::{Kind, Storage};
use store::{Entry, EventKind, WatchItem};
use tokio::sync::mpsc;

use crate::in_process::resource;

/// Changes of several resources in one stream.
pub(crate) struct CacheInformer {
    receiver: mpsc::Receiver<Change>,
    sender: mpsc::Sender<Change>,
    wanted: Arc<Wanted>,
}

/// A change, before it is decoded.
pub(crate) struct Seen<'a> {
    pub(crate) resource: &'a Resource,
    pub(crate) entry: &'a Entry,
    previous: Option<&'a Entry>,
    pub(crate) gone: bool,
}

impl Seen<'_> {
    /// A secret that is to hold a service account's token; by the looks of its bytes.
    pub(crate) fn has_legacy_token(&self) -> bool {
        memmem::find(&self.entry.json, br#""type":"kubernetes.io/service-account-token""#).is_some()
    }

    /// Has or had owners, or is being deleted; by the looks of its bytes.
    pub(crate) fn is_bound(&self) -> bool {
        let bound = |entry: &Entry| {
            let metadata = &entry.json[entry.meta.0 as usize..entry.meta.1 as usize];
            memmem::find(metadata, br#""ownerReferences":"#).is_some()
                || memmem::find(metadata, br#""deletionTimestamp":"#).is_some()
        };
        bound(self.entry) || self.previous.is_some_and(bound)
    }
}

/// A follower that falls behind by more makes the watch of its resource fall behind, which then starts
/// anew: memory stays bounded.
const CHANGES_MAX: usize = 1024;
/// How long to wait for a cache that starts anew.
const RETRY: Duration = Duration::from_millis(100);
/// How much of a snapshot is looked at in one go.
const PAGE_ENTRIES: usize = 500;

impl CacheInformer {
    /// What is there and changes from now on, as far as somebody wants to know.
    pub(crate) fn start(
        kinds: &[Arc<Kind>],
        wanted: impl Fn(&Seen<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(CHANGES_MAX);
        let wanted: Arc<Wanted> = Arc::new(wanted);
        let follow = Self { receiver, sender, wanted };
        for kind in kinds {
            follow_kind(kind, &follow.sender, &follow.wanted);
        }
        follow
    }

    /// Custom kinds too, as they come. Each is followed until its cache is closed.
    pub(crate) fn and_later(self, kinds: Option<mpsc::UnboundedReceiver<Arc<Kind>>>) -> Self {
        let (sender, wanted) = (self.sender.clone(), self.wanted.clone());
        if let Some(mut kinds) = kinds {
            tokio::spawn(async move {
                while let Some(kind) = kinds.recv().await {
                    follow_kind(&kind, &sender, &wanted);
                }
            });
        }
        self
    }
}

impl Informer for CacheInformer {
    fn next(&mut self) -> Pinned<'_, Option<Change>> {
        Box::pin(self.receiver.recv())
    }
}

fn follow_kind(kind: &Kind, sender: &mpsc::Sender<Change>, wanted: &Arc<Wanted>) {
    let Some(storage) = kind.storage.clone() else { return };
    let follower = Follower {
        resource: Arc::new(resource(kind)),
        wanted: wanted.clone(),
        sender: sender.clone(),
    };
    tokio::spawn(follower.run(storage));
}

type Wanted = dyn Fn(&Seen<'_>) -> bool + Send + Sync;

struct Follower {
    resource: Arc<Resource>,
    wanted: Arc<Wanted>,
    sender: mpsc::Sender<Change>,
}

/// Nobody listens any more.
struct ReceiverDropped;

impl Follower {
    async fn run(self, storage: Arc<Storage>) {
        while self.follow(&storage).await.is_ok() {
            if self.sender.send(Change::Lost).await.is_err() {
                return;
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Tells what is there, then what changes. Ok: changes were missed.
    async fn follow(&self, storage: &Storage) -> Result<(), ReceiverDropped> {
        let snapshot = storage.cache.snapshot();
        let mut after = None;
        loop {
            let page = snapshot.page(&storage.prefix, after.as_deref(), PAGE_ENTRIES);
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            for entry in &page {
                self.tell(entry, None, false).await?;
            }
        }
        let Ok(mut watcher) = storage.cache.watch(snapshot.revision, None) else { return Ok(()) };
        drop(snapshot);
        loop {
            match watcher.next().await {
                WatchItem::Events(events) => {
                    for event in events {
                        let gone = event.kind == EventKind::Deleted;
                        self.tell(&event.entry, event.previous.as_deref(), gone).await?;
                    }
                }
                WatchItem::Progress(_) => {}
                WatchItem::TooSlow | WatchItem::Expired => return Ok(()),
                WatchItem::Closed => return Err(ReceiverDropped),
            }
        }
    }

    async fn tell(
        &self,
        entry: &Entry,
        previous: Option<&Entry>,
        gone: bool,
    ) -> Result<(), ReceiverDropped> {
        if !(self.wanted)(&Seen { resource: &self.resource, entry, previous, gone }) {
            return Ok(());
        }
        let sighting = ObjectEvent {
            resource: self.resource.clone(),
            namespace: entry.namespace.clone(),
            name: entry.name.clone(),
            gone,
            metadata: metadata(entry),
        };
        self.sender.send(Change::Seen(sighting)).await.map_err(|_| ReceiverDropped)
    }
}

pub(crate) fn metadata(entry: &Entry) -> Value {
    let json = &entry.json[entry.meta.0 as usize..entry.meta.1 as usize];
    let options = codec::json::DecodeOptions { strict: false };
    // The server has written it itself.
    codec::json::decode_any(json, options).map(|decoded| decoded.value).unwrap_or_default()
}
