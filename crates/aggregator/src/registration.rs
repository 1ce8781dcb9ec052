//! The remote group-versions that requests are proxied for: kube-aggregator's
//! `APIServiceRegistrationController`. Handlers come and go while the server runs.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use controllers::{
    ApiClient, BoxFuture, Informer, InformerEvent, ObjectEvent, Resource, ResourceRef,
};
use meta::{GroupVersion, Value};
use parking_lot::Mutex;
use serve::Delegates;
use tokio::sync::Notify;

use crate::{
    ApiService, ProxyHandler,
    remote_server::{RemoteServer, RemoteSettings},
};

pub struct Registration {
    settings: RemoteSettings,
    servers: ArcSwap<HashMap<GroupVersion, Arc<RemoteServer>>>,
    /// Where the group-versions are claimed, once the chain is put together.
    /// Weak: the chain has a server that refers to this.
    delegates: OnceLock<Weak<Delegates>>,
    subscribers: Mutex<Vec<Weak<Changes>>>,
    /// Called when the table has changed.
    changed: Box<dyn Fn() + Send + Sync>,
}

impl Registration {
    pub fn new(settings: RemoteSettings, changed: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            settings,
            servers: ArcSwap::default(),
            delegates: OnceLock::new(),
            subscribers: Mutex::default(),
            changed: Box::new(changed),
        })
    }

    /// From now on the chain learns of remote group-versions.
    pub fn connect(&self, delegates: &Arc<Delegates>) {
        let known = self.servers.load().keys().cloned().collect();
        delegates.replace_group_versions(ProxyHandler::NAME, known);
        let _ = self.delegates.set(Arc::downgrade(delegates));
    }

    /// The server of a remote group-version.
    pub fn find(&self, group_version: &GroupVersion) -> Option<Arc<RemoteServer>> {
        self.servers.load().get(group_version).cloned()
    }

    pub(crate) fn find_by_name(&self, name: &str) -> Option<Arc<RemoteServer>> {
        let servers = self.servers.load();
        servers.values().find(|server| server.api_service.name == name).cloned()
    }

    /// All remote servers, sorted by name.
    pub fn servers(&self) -> Vec<Arc<RemoteServer>> {
        let mut all: Vec<_> = self.servers.load().values().cloned().collect();
        all.sort_by(|a, b| a.api_service.name.cmp(&b.api_service.name));
        all
    }

    /// A server as an APIService says, with the connections that there are.
    pub(crate) fn server_for(&self, api_service: ApiService) -> Option<RemoteServer> {
        let known = self.find(&api_service.group_version);
        let updated = known.and_then(|known| known.updated(&api_service));
        updated.or_else(|| RemoteServer::new(api_service, &self.settings))
    }

    /// These are the APIServices from now on.
    pub fn replace(&self, api_services: impl IntoIterator<Item = ApiService>) {
        let before = self.servers.load_full();
        let mut servers = HashMap::new();
        let mut changed = Vec::new();
        for api_service in api_services {
            if api_service.service.is_none() {
                continue;
            }
            let group_version = api_service.group_version.clone();
            let known = before.get(&group_version);
            let server = match known.filter(|known| known.api_service == api_service) {
                Some(known) => known.clone(),
                None => {
                    changed.push(api_service.name.clone());
                    let Some(server) = self.server_for(api_service) else { continue };
                    Arc::new(server)
                }
            };
            servers.insert(group_version, server);
        }
        let gone = before.iter().filter(|(known, _)| !servers.contains_key(known));
        changed.extend(gone.map(|(_, server)| server.api_service.name.clone()));
        if changed.is_empty() {
            return;
        }
        let group_versions = servers.keys().cloned().collect();
        self.servers.store(Arc::new(servers));
        if let Some(delegates) = self.delegates.get().and_then(Weak::upgrade) {
            delegates.replace_group_versions(ProxyHandler::NAME, group_versions);
        }
        (self.changed)();
        self.subscribers.lock().retain(|subscriber| {
            let Some(subscriber) = subscriber.upgrade() else { return false };
            subscriber.add(changed.iter().cloned());
            true
        });
    }

    /// The names of remote APIServices that were added, changed or removed, those that are there first.
    pub fn subscribe(&self) -> RegistrationEvents {
        let changes = Arc::new(Changes::default());
        let mut subscribers = self.subscribers.lock();
        changes.add(self.servers().iter().map(|server| server.api_service.name.clone()));
        subscribers.push(Arc::downgrade(&changes));
        RegistrationEvents(changes)
    }

    /// Runs until the server stops: every change of an APIService counts at once.
    pub async fn run(self: Arc<Self>, api: Arc<dyn ApiClient>, mut events: impl Informer) {
        loop {
            if let Err(error) = self.sync(&*api).await {
                tracing::warn!(%error, "cannot list the APIServices");
                tokio::time::sleep(RETRY_DELAY).await;
                continue;
            }
            if events.next().await.is_none() {
                return;
            }
            // What has arrived by now is listed at once.
            while let Ok(event) = tokio::time::timeout(Duration::ZERO, events.next()).await {
                if event.is_none() {
                    return;
                }
            }
        }
    }

    /// Reads all APIServices.
    pub async fn sync(&self, api: &dyn ApiClient) -> Result<(), meta::ApiError> {
        let known = api.list(&api_services()).await?;
        self.replace(known.iter().map(ApiService::read));
        Ok(())
    }
}

const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The resource of APIServices.
pub fn api_services() -> ResourceRef {
    ResourceRef::cluster("apiregistration.k8s.io", "v1", "apiservices")
}

/// Changes of the table of remote servers.
pub struct RegistrationEvents(Arc<Changes>);

/// Names that wait for a subscriber; each waits once, so that there are never more than APIServices.
#[derive(Default)]
struct Changes {
    names: Mutex<BTreeSet<String>>,
    added: Notify,
}

impl Changes {
    fn add(&self, names: impl Iterator<Item = String>) {
        self.names.lock().extend(names);
        self.added.notify_one();
    }

    async fn next(&self) -> String {
        loop {
            let next = self.names.lock().pop_first();
            match next {
                Some(name) => return name,
                None => self.added.notified().await,
            }
        }
    }
}

impl Informer for RegistrationEvents {
    fn next(&mut self) -> BoxFuture<'_, Option<InformerEvent>> {
        Box::pin(async move {
            let name = self.0.next().await;
            let resource = Resource { gvr: api_services().gvr, namespaced: false };
            Some(InformerEvent::Object(ObjectEvent {
                resource: Arc::new(resource),
                namespace: "".into(),
                name: name.into(),
                deleted: false,
                metadata: Value::object(),
            }))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use client::{HostPort, ResolveError, ServiceResolver, TcpDial};
    use meta::value;
    use proxy::Redirects;

    use super::*;

    struct Nowhere;

    impl ServiceResolver for Nowhere {
        fn resolve<'a>(
            &'a self,
            _: &'a str,
            name: &'a str,
            _: u16,
        ) -> client::BoxFuture<'a, Result<HostPort, ResolveError>> {
            Box::pin(async move { Err(ResolveError::NotFound { name: name.to_owned() }) })
        }
    }

    fn api_service(group: &str, service: Option<&str>, available: bool) -> ApiService {
        let status = if available { "True" } else { "False" };
        let mut object = value!({
            "metadata": {"name": (format!("v1.{group}"))},
            "spec": {"group": group, "version": "v1"},
            "status": {"conditions": [{"type": "Available", "status": status}]},
        });
        if let Some(name) = service {
            object.set_at(&["spec", "service"], value!({"namespace": "n", "name": name}));
        }
        ApiService::read(&object)
    }

    /// The names that wait.
    async fn drain(events: &mut RegistrationEvents) -> Vec<String> {
        let mut seen = Vec::new();
        while let Ok(Some(InformerEvent::Object(event))) =
            tokio::time::timeout(Duration::from_millis(1), events.next()).await
        {
            seen.push(event.name.to_string());
        }
        seen
    }

    #[tokio::test]
    async fn servers_come_and_go_with_their_api_services() {
        let settings = RemoteSettings {
            identity: None,
            resolver: Arc::new(Nowhere),
            dial: Arc::new(TcpDial::default()),
            redirects: Redirects::Refuse,
        };
        let changes = Arc::new(AtomicUsize::new(0));
        let counted = changes.clone();
        let registration = Registration::new(settings, move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let known = |registration: &Registration| -> String {
            let servers = registration.servers();
            let told = servers.iter().map(|server| {
                format!("{} {}", server.api_service.name, server.api_service.available)
            });
            told.collect::<Vec<_>>().join(", ")
        };
        let local = || api_service("local", None, true);
        registration.replace([local(), api_service("a", Some("s"), false)]);
        assert_eq!(known(&registration), "v1.a false");
        let mut events = registration.subscribe();
        let cases = [
            // Nothing new.
            (vec![api_service("a", Some("s"), false)], "v1.a false", &[][..]),
            (vec![api_service("a", Some("s"), true)], "v1.a true", &["v1.a"]),
            (
                vec![api_service("a", Some("t"), true), api_service("b", Some("s"), true)],
                "v1.a true, v1.b true",
                &["v1.a", "v1.b"],
            ),
            // One is local now, the other is gone.
            (vec![api_service("a", None, true)], "", &["v1.a", "v1.b"]),
        ];
        // Those that are there come first.
        assert_eq!(drain(&mut events).await, ["v1.a"]);
        for (api_services, expected, changed) in cases {
            registration.replace(api_services);
            assert_eq!(known(&registration), expected);
            assert_eq!(drain(&mut events).await, changed);
        }
        assert_eq!(changes.load(Ordering::SeqCst), 4);
    }
}
