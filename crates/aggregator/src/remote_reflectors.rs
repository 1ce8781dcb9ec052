//! Lists and watches the resources of remote servers for the garbage collector, by their metadata. A
//! resource is watched from the first time its server lists it until its server lists it no more.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::BytesMut;
use controllers::{InformerEvent, ObjectEvent, Resource, ResourceRef};
use http_body_util::BodyExt as _;
use meta::{GroupVersionResource, Value};
use tokio::{
    sync::{Semaphore, mpsc},
    task::{AbortHandle, JoinSet},
    time::Instant,
};

use crate::{
    RemoteClient, ServiceReference,
    remote_client::{controller_user, decode, path_of},
};

pub struct RemoteReflectors {
    pub client: Arc<RemoteClient>,
}

/// What all watches of one server together may have received of events that are not whole yet; a watch that exceeds
/// it ends.
const PARTIAL_BYTES_MAX: usize = 16 << 20;

/// What the reflectors of one server share: it may have many resources, and must not be a burden to other servers.
struct Shared {
    client: Arc<RemoteClient>,
    events: mpsc::Sender<InformerEvent>,
    /// Lists are read one at a time.
    listing: Semaphore,
    partial_bytes: AtomicUsize,
}

impl RemoteReflectors {
    /// Runs until `events` has no receiver.
    pub async fn run(self, events: mpsc::Sender<InformerEvent>) {
        let mut changes = self.client.apis.subscribe();
        // They end with this future.
        let mut reflectors = JoinSet::new();
        let mut servers: HashMap<ServiceReference, Arc<Shared>> = HashMap::new();
        let mut running: HashMap<GroupVersionResource, AbortHandle> = HashMap::new();
        loop {
            changes.mark_unchanged();
            let wanted = self.client.collectable_resources();
            let stays: HashSet<_> = wanted.iter().map(|(_, resource)| &resource.gvr).collect();
            running.retain(|gvr, reflector| {
                let stays = stays.contains(gvr);
                if !stays {
                    reflector.abort();
                }
                // One that panicked is started again.
                stays && !reflector.is_finished()
            });
            for (service, resource) in wanted {
                if running.contains_key(&resource.gvr) {
                    continue;
                }
                let new = || Arc::new(Shared::new(self.client.clone(), events.clone()));
                let shared = servers.entry(service).or_insert_with(new).clone();
                let gvr = resource.gvr.clone();
                let reflector = Reflector { shared, resource: Arc::new(resource) };
                running.insert(gvr, reflectors.spawn(reflector.run()));
            }
            while reflectors.try_join_next().is_some() {}
            // Servers without a reflector are gone.
            servers.retain(|_, shared| Arc::strong_count(shared) > 1);
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = events.closed() => return,
                // While the events are received none ends, but by an abort or a panic.
                Some(_) = reflectors.join_next() => tokio::time::sleep(RETRY_MIN).await,
            }
        }
    }
}

impl Shared {
    fn new(client: Arc<RemoteClient>, events: mpsc::Sender<InformerEvent>) -> Self {
        Self { client, events, listing: Semaphore::new(1), partial_bytes: AtomicUsize::new(0) }
    }
}

struct Reflector {
    shared: Arc<Shared>,
    resource: Arc<Resource>,
}

/// The bytes of an event that is not whole yet, counted among those of all watches of its server.
struct PartialEvent<'a> {
    read: BytesMut,
    counted: usize,
    all: &'a AtomicUsize,
}

impl<'a> PartialEvent<'a> {
    fn new(all: &'a AtomicUsize) -> Self {
        Self { read: BytesMut::new(), counted: 0, all }
    }

    fn is_too_long(&mut self) -> bool {
        let all = self.count(self.read.len());
        self.read.len() > EVENT_BYTES_MAX || all > PARTIAL_BYTES_MAX
    }

    fn count(&mut self, bytes: usize) -> usize {
        let before = self.all.fetch_add(bytes, Ordering::Relaxed);
        self.all.fetch_sub(self.counted, Ordering::Relaxed);
        let others = before - self.counted;
        self.counted = bytes;
        others + bytes
    }
}

impl Drop for PartialEvent<'_> {
    fn drop(&mut self) {
        self.count(0);
    }
}

const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_mins(1);
/// A watch that lasted so long was a good one.
const STEADY_TIME: Duration = Duration::from_secs(10);
/// The server is asked to end a watch after this time. One that does not, or a connection that is dead,
/// is given up a little later.
const WATCH_TIME: Duration = Duration::from_mins(5);
const WATCH_GRACE: Duration = Duration::from_secs(30);
/// One event; a longer one ends the watch.
const EVENT_BYTES_MAX: usize = 8 << 20;

/// The garbage collector has ended.
struct ReceiverDropped;

/// Why a watch has ended.
enum WatchEnd {
    /// It can go on from the last resourceVersion.
    Timeout,
    /// The objects have to be listed again.
    Relist(String),
    ReceiverDropped,
}

impl Reflector {
    async fn run(self) {
        let mut wait = RETRY_MIN;
        loop {
            match self.list_and_watch(&mut wait).await {
                WatchEnd::ReceiverDropped => return,
                WatchEnd::Timeout => {}
                WatchEnd::Relist(why) => {
                    let resource = self.resource.gvr.group_resource();
                    tracing::debug!(%resource, "watch of a remote resource ended: {why}");
                    if self.shared.events.send(InformerEvent::Relisted).await.is_err() {
                        return;
                    }
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RETRY_MAX);
        }
    }

    async fn list_and_watch(&self, wait: &mut Duration) -> WatchEnd {
        let mut version = match self.list().await {
            Ok(version) => version,
            Err(end) => return end,
        };
        loop {
            let began = Instant::now();
            let watch = self.watch(&mut version);
            let ended = tokio::time::timeout(WATCH_TIME + WATCH_GRACE, watch).await;
            // A list that succeeds is not enough: a server that ends each watch at once is asked later and later.
            if began.elapsed() >= STEADY_TIME {
                *wait = RETRY_MIN;
            }
            match ended {
                Ok(WatchEnd::Timeout) if began.elapsed() < STEADY_TIME => {
                    tokio::time::sleep(*wait).await;
                    *wait = (*wait * 2).min(RETRY_MAX);
                }
                Ok(WatchEnd::Timeout) | Err(_) => {}
                Ok(end) => return end,
            }
        }
    }

    /// Sends all objects, page by page: a list may be longer than it should be in memory. The resourceVersion to
    /// watch from.
    async fn list(&self) -> Result<String, WatchEnd> {
        let _turn = self.shared.listing.acquire().await.map_err(|_| WatchEnd::ReceiverDropped)?;
        let target = self.target();
        let mut pages = self.shared.client.pages(&target);
        loop {
            let page = pages.next().await.map_err(|error| WatchEnd::Relist(error.to_string()))?;
            for object in &page.items {
                let sent = self.send(object, false).await;
                sent.map_err(|ReceiverDropped| WatchEnd::ReceiverDropped)?;
            }
            if let Some(version) = page.last {
                return Ok(version);
            }
        }
    }

    /// `version` is that of the last event.
    async fn watch(&self, version: &mut String) -> WatchEnd {
        let path = format!(
            "{}?watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={}",
            path_of(&self.target()),
            WATCH_TIME.as_secs()
        );
        let Some(server) = self.shared.client.find(&self.resource.gvr) else {
            return WatchEnd::Relist("not served".to_owned());
        };
        let mut body = match server.stream(&path, ACCEPT_METADATA, &controller_user()).await {
            Ok(body) => body,
            Err(why) => return WatchEnd::Relist(why),
        };
        let mut event = PartialEvent::new(&self.shared.partial_bytes);
        while let Some(frame) = body.frame().await {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return WatchEnd::Relist(error.to_string()),
            };
            let Ok(data) = frame.into_data() else { continue };
            let mut from = event.read.len();
            event.read.extend_from_slice(&data);
            while let Some(end) = event.read[from..].iter().position(|byte| *byte == b'\n') {
                let line = event.read.split_to(from + end + 1);
                from = 0;
                if let Err(end) = self.event(&line, version).await {
                    return end;
                }
            }
            if event.is_too_long() {
                return WatchEnd::Relist("an event is too long".to_owned());
            }
        }
        WatchEnd::Timeout
    }

    async fn event(&self, line: &[u8], version: &mut String) -> Result<(), WatchEnd> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let event = decode(line).map_err(|error| WatchEnd::Relist(error.to_string()))?;
        let object = event.at(&["object"]).unwrap_or(&Value::Null);
        let kind = event.str_at(&["type"]);
        if !matches!(kind, "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK") {
            return Err(WatchEnd::Relist(object.str_at(&["message"]).to_owned()));
        }
        object.str_at(&["metadata", "resourceVersion"]).clone_into(version);
        if kind == "BOOKMARK" {
            return Ok(());
        }
        self.send(object, kind == "DELETED")
            .await
            .map_err(|ReceiverDropped| WatchEnd::ReceiverDropped)
    }

    async fn send(&self, object: &Value, deleted: bool) -> Result<(), ReceiverDropped> {
        let metadata = object.get("metadata").cloned().unwrap_or_default();
        // What has no UID neither owns nor is owned.
        if metadata.str_at(&["uid"]).is_empty() {
            return Ok(());
        }
        let event = ObjectEvent {
            resource: self.resource.clone(),
            namespace: metadata.str_at(&["namespace"]).into(),
            name: metadata.str_at(&["name"]).into(),
            deleted,
            metadata,
        };
        self.shared.events.send(InformerEvent::Object(event)).await.map_err(|_| ReceiverDropped)
    }

    fn target(&self) -> ResourceRef {
        self.resource.target("", "")
    }
}

const ACCEPT_METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_are_not_whole_are_bounded_together() {
        let all = AtomicUsize::new(0);
        let mut events: Vec<_> = (0..5).map(|_| PartialEvent::new(&all)).collect();
        let grow = |event: &mut PartialEvent<'_>, bytes: usize| {
            event.read.resize(bytes, b' ');
            event.is_too_long()
        };
        assert!(events[..4].iter_mut().all(|event| !grow(event, 3 << 20)));
        assert!(grow(&mut events[4], 5 << 20), "all together are too long");
        assert!(!grow(&mut events[4], 1 << 20));
        assert!(!grow(&mut events[0], 6 << 20));
        events.truncate(1);
        assert!(!grow(&mut events[0], 8 << 20));
        assert!(grow(&mut events[0], (8 << 20) + 1), "one is too long");
        drop(events);
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }
}
