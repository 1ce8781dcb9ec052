//! Updates discovery and OpenAPI when the served kinds, or what remote servers say, change.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use aggregator::{
    Aggregator, DiscoveryDocuments, OpenApi, PeerProxy, Registration, RemoteApis,
    ServedGroupVersion,
};
use descriptions::Descriptions;
use endpoints::Resources;
use meta::{GroupResource, GroupVersion};
use prometheus::{IntCounter, Registry};
use registry::{CustomKind, Kind};
use schema::{Schema, openapi::Describe};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

/// Renders the documents when the served kinds change.
pub(crate) struct DiscoveryPublisher {
    aggregator: Arc<Aggregator>,
    schema: Arc<Schema>,
    built_in: Vec<ServedGroupVersion>,
    /// The table that the CRD controller replaces.
    extensions: Arc<Resources>,
    /// The group-versions of other servers.
    remote: OnceLock<(Arc<Registration>, Arc<RemoteApis>)>,
    /// Other API servers of the cluster.
    peers: OnceLock<Arc<PeerProxy>>,
    /// Tells the auto-registration.
    kinds_changed: Notify,
    /// `host:port`, set by [`Self::open`].
    address: OnceLock<String>,
    changes: Debounce,
    /// Number of publications.
    published: IntCounter,
    /// The storage version of every custom resource that has a cache: one per definition.
    caches: watch::Sender<CachedKinds>,
}

/// Custom resources that have a cache, each in its storage version.
pub(crate) type CachedKinds = Arc<[Arc<Kind>]>;

impl DiscoveryPublisher {
    pub(crate) fn new(
        aggregator: Arc<Aggregator>,
        schema: Arc<Schema>,
        built_in: Vec<ServedGroupVersion>,
        extensions: Arc<Resources>,
    ) -> (Arc<Self>, watch::Receiver<CachedKinds>) {
        let (caches, starts) = watch::channel(Arc::default());
        let name = "aggregator_discovery_aggregation_count_total";
        let published = IntCounter::new(name, "How often discovery and OpenAPI were rendered.");
        let publisher = Self {
            aggregator,
            schema,
            built_in,
            extensions,
            remote: OnceLock::new(),
            peers: OnceLock::new(),
            kinds_changed: Notify::new(),
            address: OnceLock::new(),
            changes: Debounce::default(),
            published: published.expect("a valid name"),
            caches,
        };
        (Arc::new(publisher), starts)
    }

    pub(crate) fn register(&self, registry: &Registry) {
        registry.register(Box::new(self.published.clone())).expect("registered once");
    }

    /// Publishes the first documents.
    pub(crate) fn open(&self, address: String) {
        let _ = self.address.set(address);
        self.publish();
    }

    /// From now on remote group-versions are published as well.
    pub(crate) fn connect(&self, registration: Arc<Registration>, apis: Arc<RemoteApis>) {
        drop(self.remote.set((registration, apis)));
    }

    /// From now on discovery has what other API servers serve as well.
    pub(crate) fn connect_peers(self: &Arc<Self>, peers: Arc<PeerProxy>) {
        let (own, changed) = (Arc::downgrade(self), Arc::downgrade(self));
        peers.connect(
            move || own.upgrade().map(|own| own.served_by_objects()).unwrap_or_default(),
            move || {
                if let Some(publisher) = changed.upgrade() {
                    publisher.on_remote_apis_changed();
                }
            },
        );
        drop(self.peers.set(peers));
    }

    /// The group-versions that definitions and APIServices make, which all API servers learn of by themselves.
    fn served_by_objects(&self) -> BTreeSet<GroupVersion> {
        let custom = self.extensions.kinds();
        let custom = custom.iter().filter(|kind| kind.custom.is_some());
        let mut found: BTreeSet<_> = custom.map(|kind| kind.group_version()).collect();
        if let Some((registration, _)) = self.remote.get() {
            let servers = registration.servers().into_iter();
            found.extend(servers.map(|server| server.api_service.group_version.clone()));
        }
        found
    }

    pub(crate) fn on_remote_apis_changed(&self) {
        self.changes.change();
    }

    /// Resolves when the kinds of this server have changed and were published.
    pub(crate) async fn published(&self) {
        self.kinds_changed.notified().await;
    }

    /// Every group-version that this server has.
    pub(crate) fn local(&self) -> Vec<ServedGroupVersion> {
        let mut served = self.built_in.clone();
        served.extend(custom_group_versions(&self.extensions));
        served
    }

    /// Every group-version that is served, here or elsewhere.
    fn served(&self) -> Vec<ServedGroupVersion> {
        let mut served = self.local();
        if let Some((registration, apis)) = self.remote.get() {
            let remote = apis.served(registration);
            // An APIService decides which server answers.
            served.retain(|own| !remote.iter().any(|one| one.group_version == own.group_version));
            served.extend(remote);
        }
        served
    }

    fn publish(&self) {
        let Some(address) = self.address.get() else { return };
        let changes = self.aggregator.changes();
        let served = self.served();
        let mut documents = DiscoveryDocuments::new(&served, &self.schema, address);
        if let Some(peers) = self.peers.get() {
            peers.sync_exclusions();
            documents = documents.with_peers(peers, &self.schema);
        }
        let previous = self.aggregator.openapi_documents();
        let now = SystemTime::now();
        let openapi =
            OpenApi::new(&served, self.schema.clone(), descriptions, now, previous.as_deref());
        self.aggregator.publish(documents, openapi, changes);
        self.published.inc();
    }

    /// Runs until the server stops. A burst of changes is published once.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            self.changes.next(self.aggregator.awaited()).await;
            let publisher = self.clone();
            if tokio::task::spawn_blocking(move || publisher.publish()).await.is_err() {
                tracing::error!("rendering discovery and OpenAPI panicked");
            }
            self.kinds_changed.notify_one();
        }
    }
}

fn descriptions() -> Box<dyn Describe> {
    Box::new(Descriptions::load())
}

/// Merges changes in quick succession.
#[derive(Default)]
struct Debounce(Notify);

impl Debounce {
    fn change(&self) {
        self.0.notify_one();
    }

    /// Returns after a change once [`QUIET_PERIOD`] has passed without another, [`BURST_MAX`] after the
    /// first, or when a reader waits for it.
    async fn next(&self, awaited: impl Future<Output = ()>) {
        self.0.notified().await;
        let quiet = async {
            let begun = Instant::now();
            while begun.elapsed() < BURST_MAX
                && tokio::time::timeout(QUIET_PERIOD, self.0.notified()).await.is_ok()
            {}
        };
        tokio::select! {
            () = quiet => {}
            () = awaited => {}
        }
    }
}

/// Time without changes that ends a burst, and the longest burst.
const QUIET_PERIOD: Duration = Duration::from_millis(25);
const BURST_MAX: Duration = Duration::from_secs(2);

impl apiextensions::CrdEventHandler for DiscoveryPublisher {
    fn on_kinds_changed(&self) {
        self.aggregator.mark_changed();
        self.changes.change();
        let kinds = self.extensions.kinds();
        let served: HashSet<GroupResource> =
            kinds.iter().map(|kind| kind.group_resource()).collect();
        // A definition that is gone must not keep its objects in memory.
        self.caches.send_if_modified(|caches| {
            let before = caches.len();
            let left = caches.iter().filter(|kind| served.contains(&kind.group_resource()));
            let left: CachedKinds = left.cloned().collect();
            let changed = left.len() != before;
            *caches = left;
            changed
        });
    }

    fn on_cache_started(&self, stored: &Arc<Kind>) {
        self.caches.send_modify(|caches| {
            let resource = stored.group_resource();
            let others = caches.iter().filter(|kind| kind.group_resource() != resource);
            *caches = others.chain([stored]).cloned().collect();
        });
    }
}

/// The group-versions of custom resources. Terminating ones are listed without create, update and patch.
fn custom_group_versions(extensions: &Resources) -> Vec<ServedGroupVersion> {
    let kinds = extensions.kinds();
    let mut by_version: BTreeMap<GroupVersion, Vec<(&Arc<Kind>, &CustomKind)>> = BTreeMap::new();
    for kind in kinds.iter() {
        if let Some(custom) = &kind.custom {
            by_version.entry(kind.group_version()).or_default().push((kind, custom));
        }
    }
    let served = by_version.into_iter().map(|(group_version, mut kinds)| {
        kinds.sort_by(|(a, _), (b, _)| a.facts.plural.cmp(&b.facts.plural));
        let resources = kinds.iter().map(|(kind, custom)| {
            let mut facts = kind.facts.clone();
            if custom.terminating {
                facts.verbs.retain(|verb| !["patch", "create", "update"].contains(&verb.as_str()));
            }
            Arc::new(facts)
        });
        ServedGroupVersion {
            group_version,
            group_priority: 1000,
            version_priority: 100,
            resources: resources.collect(),
            custom: Some(kinds.iter().map(|(_, custom)| custom.published.clone()).collect()),
            remote: None,
        }
    });
    served.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of bursts that a number of changes with this interval leads to.
    async fn bursts(changes: u32, apart: Duration) -> usize {
        let bursts = Arc::new(Debounce::default());
        let (count, counted) = (Arc::new(std::sync::atomic::AtomicUsize::new(0)), bursts.clone());
        let counter = count.clone();
        let counting = tokio::spawn(async move {
            loop {
                counted.next(std::future::pending()).await;
                counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        });
        for _ in 0..changes {
            bursts.change();
            tokio::time::sleep(apart).await;
        }
        tokio::time::sleep(2 * QUIET_PERIOD).await;
        counting.abort();
        count.load(std::sync::atomic::Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_waits_ends_the_burst() {
        let burst = Debounce::default();
        burst.change();
        let begun = Instant::now();
        burst.next(std::future::ready(())).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn changes_in_quick_succession_are_published_once() {
        let cases = [
            (1, Duration::ZERO, 1),
            (500, Duration::ZERO, 1),
            (100, QUIET_PERIOD / 2, 1),
            // Five seconds of changes: one publication per BURST_MAX.
            (500, Duration::from_millis(10), 3),
            (3, 2 * QUIET_PERIOD, 3),
        ];
        for (changes, apart, expected) in cases {
            assert_eq!(
                bursts(changes, apart).await,
                expected,
                "{changes} changes, {apart:?} apart"
            );
        }
    }
}
