//! What remote group-versions say about themselves: their discovery and their OpenAPI, as last heard.

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwap;
use bytes::Bytes;
use meta::{Value, value};
use tokio::sync::watch;

use crate::{Registration, ServedGroupVersion, remote_server::RemoteServer};

/// All of it, by the names of APIServices. Readers take no lock.
pub struct RemoteApis {
    by_name: ArcSwap<BTreeMap<String, Arc<RemoteApi>>>,
    /// Called when anything has changed.
    changed: Box<dyn Fn() + Send + Sync>,
    /// Wakes those that follow the changes.
    revisions: watch::Sender<()>,
}

/// What a remote group-version says about itself.
#[derive(Clone, Debug, Default)]
pub struct RemoteApi {
    /// `APIVersionDiscovery`, without its freshness. None: never heard of.
    pub(crate) discovery: Option<Arc<Value>>,
    /// The last attempt to hear of it has succeeded.
    pub(crate) current: bool,
    /// Where its OpenAPI v3 is, below this server too: `/openapi/v3/apis/g/v1?hash=…`.
    pub(crate) openapi_v3: Option<String>,
    /// Of a server without OpenAPI v3: its part of v2 with `info`, which is converted.
    pub(crate) converted_v2: Option<Bytes>,
    /// Its part of OpenAPI v2: JSON with `paths`, `definitions` and `parameters`.
    pub(crate) openapi_v2: Option<Bytes>,
}

impl RemoteApis {
    pub fn new(changed: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        let revisions = watch::Sender::new(());
        Arc::new(Self { by_name: ArcSwap::default(), changed: Box::new(changed), revisions })
    }

    /// The remote group-versions with what they say, those that were never heard of included.
    pub fn served(&self, registration: &Registration) -> Vec<ServedGroupVersion> {
        let by_name = self.by_name.load();
        let served = registration.servers().into_iter().map(|server| {
            let api_service = &server.api_service;
            ServedGroupVersion {
                group_version: api_service.group_version.clone(),
                group_priority: api_service.group_priority,
                version_priority: api_service.version_priority,
                resources: Vec::new(),
                custom: None,
                remote: Some(by_name.get(&api_service.name).cloned().unwrap_or_default()),
            }
        });
        served.collect()
    }

    pub(crate) fn get(&self, name: &str) -> Arc<RemoteApi> {
        self.by_name.load().get(name).cloned().unwrap_or_default()
    }

    /// Changes what is known of one; `change` says whether anything has changed.
    pub(crate) fn update(
        &self,
        server: &RemoteServer,
        change: impl Fn(&mut RemoteApi) -> bool,
    ) -> bool {
        let mut changed = false;
        self.by_name.rcu(|known| {
            let mut known = BTreeMap::clone(known);
            let mut api =
                RemoteApi::clone(known.entry(server.api_service.name.clone()).or_default());
            changed = change(&mut api);
            known.insert(server.api_service.name.clone(), Arc::new(api));
            known
        });
        if changed {
            self.notify();
        }
        changed
    }

    /// A receiver that is woken by each change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.revisions.subscribe()
    }

    fn notify(&self) {
        (self.changed)();
        self.revisions.send_replace(());
    }

    pub(crate) fn remove(&self, name: &str) {
        self.by_name.rcu(|known| {
            let mut known = BTreeMap::clone(known);
            known.remove(name);
            known
        });
        self.notify();
    }
}

impl RemoteApi {
    /// `APIVersionDiscovery`.
    pub(crate) fn version_discovery(&self, version: &str) -> Value {
        let mut discovery = match &self.discovery {
            Some(discovery) => Value::clone(discovery),
            None => value!({"version": version}),
        };
        discovery.set_at(&["freshness"], if self.current { "Current" } else { "Stale" });
        discovery
    }
}
