//! Informers over the watch caches. Only events that pass the filter are decoded.

use std::{
    collections::{HashMap, hash_map::Entry::Vacant},
    sync::{Arc, Weak},
    time::Duration,
};

use aggregator::RemoteReflectors;
use codec::raw_object::{self, FieldSet};
use controllers::{BoxFuture, Informer, InformerEvent, ObjectEvent, Resource};
use memchr::memmem;
use meta::Value;
use registry::{Kind, Storage};
use store::{Entry, EventKind, WatchItem};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use crate::{
    discovery_publisher::CachedKinds,
    in_process::{resource, tree},
};

/// The events of several resources in one stream.
pub(crate) struct CacheInformer {
    receiver: mpsc::Receiver<InformerEvent>,
    sender: mpsc::Sender<InformerEvent>,
    filter: Arc<EventFilter>,
    /// They end with the informer.
    reflectors: JoinSet<()>,
    custom: Option<CustomKinds>,
}

/// The kinds of custom resources that have a cache, as they come and go.
pub(crate) struct CustomKinds {
    changes: watch::Receiver<CachedKinds>,
    /// The caches that have a reflector, by address. A weak reference keeps the address from being used again.
    known: HashMap<usize, Weak<Storage>>,
}

impl CustomKinds {
    pub(crate) fn new(mut changes: watch::Receiver<CachedKinds>) -> Self {
        changes.mark_changed();
        Self { changes, known: HashMap::new() }
    }

    /// The kinds with a new cache.
    async fn next(&mut self) -> Vec<Arc<Kind>> {
        if self.changes.changed().await.is_err() {
            // The server stops.
            return std::future::pending().await;
        }
        let kinds = self.changes.borrow_and_update().clone();
        self.known.retain(|_, known| known.strong_count() > 0);
        let mut new = Vec::new();
        for kind in kinds.iter() {
            let Some(storage) = &kind.storage else { continue };
            if let Vacant(place) = self.known.entry(Arc::as_ptr(storage).addr()) {
                place.insert(Arc::downgrade(storage));
                new.push(kind.clone());
            }
        }
        new
    }
}

/// An event before its object is decoded.
pub(crate) struct CacheEvent<'a> {
    pub(crate) resource: &'a Resource,
    pub(crate) entry: &'a Entry,
    pub(crate) previous: Option<&'a Entry>,
    pub(crate) deleted: bool,
}

impl CacheEvent<'_> {
    /// Whether it is a secret of the service account token type, by a search of its bytes.
    pub(crate) fn is_token_secret(&self) -> bool {
        memmem::find(&self.entry.json.text(), br#""type":"kubernetes.io/service-account-token""#)
            .is_some()
    }

    /// Whether it is a quota that is new or whose limits were changed. Its status changes with every object
    /// that admission charges for: to count then would miss the objects that are being created.
    pub(crate) fn changes_quota(&self) -> bool {
        let is_quota =
            self.resource.gvr.resource == "resourcequotas" && self.resource.gvr.group.is_empty();
        let spec = |entry: &Entry| tree(entry).ok().and_then(|quota| quota.get("spec").cloned());
        is_quota && self.previous.is_none_or(|previous| spec(previous) != spec(self.entry))
    }

    /// Whether it now uses less of what quotas limit although it still exists: a pod that has ended, a
    /// service or claim that was changed. By a search of its bytes.
    pub(crate) fn frees_quota(&self) -> bool {
        let Some(previous) = self.previous else { return false };
        match self.resource.gvr.resource.as_str() {
            "pods" => {
                let has_ended = |entry: &Entry| {
                    let json = entry.json.text();
                    [&br#""phase":"Succeeded""#[..], br#""phase":"Failed""#]
                        .iter()
                        .any(|phase| memmem::find(&json, phase).is_some())
                };
                has_ended(self.entry) && !has_ended(previous)
            }
            "services" | "persistentvolumeclaims" => self.resource.gvr.group.is_empty(),
            _ => false,
        }
    }

    /// Whether it has or had owners or is being deleted, by a search of its bytes.
    pub(crate) fn has_owner_or_is_deleting(&self) -> bool {
        let matches = |entry: &Entry| {
            let metadata = entry.metadata();
            memmem::find(&metadata, br#""ownerReferences":"#).is_some()
                || memmem::find(&metadata, br#""deletionTimestamp":"#).is_some()
        };
        matches(self.entry) || self.previous.is_some_and(matches)
    }
}

/// Whether an event is about an APIService that names or named a Service.
pub(crate) fn concerns_remote_api_service(event: &CacheEvent<'_>) -> bool {
    names_service(event.entry) || event.previous.is_some_and(names_service)
}

/// Whether an APIService names a Service, by a search of its bytes.
pub(crate) fn names_service(entry: &Entry) -> bool {
    memmem::find(&entry.json.text(), br#""service":{"#).is_some()
}

/// A controller that is further behind stalls the reflectors, whose watches then expire and relist:
/// memory stays bounded.
const EVENTS_MAX: usize = 1024;
/// Delay before a relist.
const RETRY: Duration = Duration::from_millis(100);
/// Entries of a snapshot that are sent before the next page is read.
const PAGE_ENTRIES: usize = 500;

impl CacheInformer {
    /// Lists and watches the kinds; only events that pass the filter are sent.
    pub(crate) fn start(
        kinds: &[Arc<Kind>],
        filter: impl Fn(&CacheEvent<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(EVENTS_MAX);
        let filter: Arc<EventFilter> = Arc::new(filter);
        let mut informer =
            Self { receiver, sender, filter, reflectors: JoinSet::new(), custom: None };
        for kind in kinds {
            informer.start_reflector(kind);
        }
        informer
    }

    /// Custom kinds as well, as they are served. Each is watched until its cache is closed.
    pub(crate) fn with_custom_kinds(self, kinds: CustomKinds) -> Self {
        Self { custom: Some(kinds), ..self }
    }

    /// The kinds of aggregated servers as well. All of their events are sent.
    pub(crate) fn with_remote_kinds(mut self, remote: RemoteReflectors) -> Self {
        self.reflectors.spawn(remote.run(self.sender.clone()));
        self
    }

    fn start_reflector(&mut self, kind: &Kind) {
        let Some(storage) = kind.storage.clone() else { return };
        let reflector = Reflector {
            resource: Arc::new(resource(kind)),
            filter: self.filter.clone(),
            sender: self.sender.clone(),
        };
        self.reflectors.spawn(reflector.run(storage));
    }

    async fn next_event(&mut self) -> Option<InformerEvent> {
        loop {
            let custom = async {
                match &mut self.custom {
                    Some(custom) => custom.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(ended) = self.reflectors.join_next() => {
                    // A controller that misses events is wrong without knowing it: it panics too, and
                    // is started again with new reflectors.
                    if let Err(error) = ended && error.is_panic() {
                        std::panic::resume_unwind(error.into_panic());
                    }
                }
                kinds = custom => {
                    for kind in kinds {
                        self.start_reflector(&kind);
                    }
                }
                event = self.receiver.recv() => return event,
            }
        }
    }
}

impl Informer for CacheInformer {
    fn next(&mut self) -> BoxFuture<'_, Option<InformerEvent>> {
        Box::pin(self.next_event())
    }
}

type EventFilter = dyn Fn(&CacheEvent<'_>) -> bool + Send + Sync;

struct Reflector {
    resource: Arc<Resource>,
    filter: Arc<EventFilter>,
    sender: mpsc::Sender<InformerEvent>,
}

/// The controller has ended, or the cache is closed.
struct ReceiverDropped;

impl Reflector {
    async fn run(self, storage: Arc<Storage>) {
        while self.list_and_watch(&storage).await.is_ok() {
            if self.sender.send(InformerEvent::Relisted).await.is_err() {
                return;
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Sends the listed objects, then the events. Ok means that the watch expired.
    async fn list_and_watch(&self, storage: &Storage) -> Result<(), ReceiverDropped> {
        let snapshot = storage.cache.snapshot();
        let mut after = None;
        loop {
            let page = snapshot.page(&storage.prefix, after.as_deref(), PAGE_ENTRIES);
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            for entry in &page {
                self.send(entry, None, false).await?;
            }
        }
        let Ok(mut watcher) = storage.cache.watch(snapshot.revision, None) else { return Ok(()) };
        drop(snapshot);
        loop {
            match watcher.next().await {
                WatchItem::Events(events) => {
                    for event in events {
                        let deleted = event.kind == EventKind::Deleted;
                        self.send(&event.entry, event.previous.as_deref(), deleted).await?;
                    }
                }
                WatchItem::Progress(_) => {}
                WatchItem::TooSlow | WatchItem::Expired => return Ok(()),
                WatchItem::Closed => return Err(ReceiverDropped),
            }
        }
    }

    async fn send(
        &self,
        entry: &Entry,
        previous: Option<&Entry>,
        deleted: bool,
    ) -> Result<(), ReceiverDropped> {
        if !(self.filter)(&CacheEvent { resource: &self.resource, entry, previous, deleted }) {
            return Ok(());
        }
        let event = ObjectEvent {
            resource: self.resource.clone(),
            namespace: entry.namespace.clone(),
            name: entry.name.clone(),
            deleted,
            metadata: metadata(entry),
        };
        self.sender.send(InformerEvent::Object(event)).await.map_err(|_| ReceiverDropped)
    }
}

/// The metadata of an object without managedFields: these are most of it, and no controller reads them.
pub(crate) fn metadata(entry: &Entry) -> Value {
    let mut object = [br#"{"metadata":"#, &*entry.metadata(), b"}"].concat();
    // Infallible in practice: the apiserver wrote these bytes.
    let scanned = raw_object::scan(&object, &FieldSet::new([])).unwrap_or_default();
    if let Some(managed_fields) = scanned.managed_fields {
        object.drain(managed_fields);
    }
    let options = codec::json::DecodeOptions { strict: false };
    let decoded = codec::json::decode_any(&object, options).map(|decoded| decoded.value);
    decoded.ok().and_then(|mut object| object.remove_at(&["metadata"])).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn an_api_service_concerns_the_registration_if_it_names_or_named_a_service() {
        let entry = |json: &'static str| Entry { json: json.into(), ..Entry::default() };
        let remote = entry(r#"{"spec":{"group":"g","service":{"name":"s","namespace":"n"}}}"#);
        let local = entry(r#"{"spec":{"group":"g"},"metadata":{"annotations":{"service":"{"}}}"#);
        let resource = Resource::default();
        let concerns = |entry, previous, deleted| {
            concerns_remote_api_service(&CacheEvent {
                resource: &resource,
                entry,
                previous,
                deleted,
            })
        };
        assert!(concerns(&remote, None, false) && concerns(&remote, None, true));
        assert!(concerns(&remote, Some(&local), false) && concerns(&local, Some(&remote), false));
        assert!(!concerns(&local, None, false) && !concerns(&local, Some(&local), true));
    }

    #[test]
    fn metadata_is_decoded_without_managed_fields() {
        let cases = [
            (
                r#"{"name":"a","managedFields":[{"manager":"m","fieldsV1":{"f:a":{}}}]}"#,
                value!({"name": "a"}),
            ),
            (r#"{"managedFields":[{"manager":"m"}],"name":"a"}"#, value!({"name": "a"})),
            (r#"{"managedFields":[]}"#, value!({})),
            (
                r#"{"name":"a","annotations":{"managedFields":"kept"},"uid":"u"}"#,
                value!({"name": "a", "annotations": {"managedFields": "kept"}, "uid": "u"}),
            ),
        ];
        for (json, expected) in cases {
            let entry =
                Entry { json: json.into(), meta: (0, json.len() as u32), ..Entry::default() };
            assert_eq!(metadata(&entry), expected, "{json}");
        }
    }
}
