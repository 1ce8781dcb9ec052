//! Lists and watches the resources of remote servers for the garbage collector, by their metadata. A
//! resource is watched from the first time its server lists it until its server lists it no more.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::BytesMut;
use controllers::{InformerEvent, ObjectEvent, Resource, ResourceRef};
use http_body_util::BodyExt as _;
use meta::{GroupVersionResource, Value};
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::Instant,
};

use crate::{
    RemoteClient,
    remote_client::{controller_user, decode, path_of},
};

pub struct RemoteReflectors {
    pub client: Arc<RemoteClient>,
}

impl RemoteReflectors {
    /// Runs until `events` has no receiver.
    pub async fn run(self, events: mpsc::Sender<InformerEvent>) {
        let mut changes = self.client.apis.subscribe();
        // They end with this future.
        let mut reflectors = JoinSet::new();
        let mut running: HashMap<GroupVersionResource, AbortHandle> = HashMap::new();
        loop {
            changes.mark_unchanged();
            let wanted = self.client.collectable_resources();
            running.retain(|gvr, reflector| {
                let stays = wanted.iter().any(|resource| resource.gvr == *gvr);
                if !stays {
                    reflector.abort();
                }
                stays
            });
            for resource in wanted {
                if running.contains_key(&resource.gvr) {
                    continue;
                }
                let reflector = Reflector {
                    client: self.client.clone(),
                    resource: Arc::new(resource.clone()),
                    events: events.clone(),
                };
                running.insert(resource.gvr, reflectors.spawn(reflector.run()));
            }
            while reflectors.try_join_next().is_some() {}
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = events.closed() => return,
            }
        }
    }
}

struct Reflector {
    client: Arc<RemoteClient>,
    resource: Arc<Resource>,
    events: mpsc::Sender<InformerEvent>,
}

const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_mins(1);
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
                    if self.events.send(InformerEvent::Relisted).await.is_err() {
                        return;
                    }
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RETRY_MAX);
        }
    }

    async fn list_and_watch(&self, wait: &mut Duration) -> WatchEnd {
        let listed = match self.client.list_with_version(&self.target()).await {
            Ok(listed) => listed,
            Err(error) => return WatchEnd::Relist(error.to_string()),
        };
        *wait = RETRY_MIN;
        for object in &listed.items {
            if self.send(object, false).await.is_err() {
                return WatchEnd::ReceiverDropped;
            }
        }
        let mut version = listed.resource_version;
        loop {
            let began = Instant::now();
            let watch = self.watch(&mut version);
            match tokio::time::timeout(WATCH_TIME + WATCH_GRACE, watch).await {
                // A server that ends each watch at once is not asked again at once.
                Ok(WatchEnd::Timeout) => tokio::time::sleep_until(began + RETRY_MIN).await,
                Ok(end) => return end,
                Err(_) => {}
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
        let Some(server) = self.client.find(&self.resource.gvr) else {
            return WatchEnd::Relist("not served".to_owned());
        };
        let mut body = match server.stream(&path, ACCEPT_METADATA, &controller_user()).await {
            Ok(body) => body,
            Err(why) => return WatchEnd::Relist(why),
        };
        let mut read = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return WatchEnd::Relist(error.to_string()),
            };
            let Ok(data) = frame.into_data() else { continue };
            let searched = read.len();
            if searched + data.len() > EVENT_BYTES_MAX {
                return WatchEnd::Relist("an event is too long".to_owned());
            }
            read.extend_from_slice(&data);
            let mut from = searched;
            while let Some(end) = read[from..].iter().position(|byte| *byte == b'\n') {
                let line = read.split_to(from + end + 1);
                from = 0;
                if let Err(end) = self.event(&line, version).await {
                    return end;
                }
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
        self.events.send(InformerEvent::Object(event)).await.map_err(|_| ReceiverDropped)
    }

    fn target(&self) -> ResourceRef {
        self.resource.target("", "")
    }
}

const ACCEPT_METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
