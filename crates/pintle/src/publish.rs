//! Discovery, OpenAPI and APIServices follow what is served.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use aggregator::{Aggregator, Documents, OpenApi, ServedGroupVersion};
use descriptions::Descriptions;
use endpoints::Resources;
use meta::GroupVersion;
use prometheus::{IntCounter, Registry};
use registry::{CustomKind, Kind};
use schema::{Schema, openapi::Describe};
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};

use crate::{in_process::Api, register::register};

/// Makes the documents anew when something else is served.
pub(crate) struct Publisher {
    aggregator: Arc<Aggregator>,
    schema: Arc<Schema>,
    built_in: Vec<ServedGroupVersion>,
    /// Where custom kinds come and go.
    extensions: Arc<Resources>,
    /// `host:port`, once it is known.
    address: OnceLock<String>,
    due: Bursts,
    /// How often something was published.
    published: IntCounter,
    /// Told of every new cache of custom resources.
    started: mpsc::UnboundedSender<Arc<Kind>>,
}

impl Publisher {
    pub(crate) fn new(
        aggregator: Arc<Aggregator>,
        schema: Arc<Schema>,
        built_in: Vec<ServedGroupVersion>,
        extensions: Arc<Resources>,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Arc<Kind>>) {
        #[expect(
            clippy::disallowed_methods,
            reason = "told where nobody can wait; as many as there are definitions, which the store bounds"
        )]
        let (started, starts) = mpsc::unbounded_channel();
        let name = "aggregator_discovery_aggregation_count_total";
        let published = IntCounter::new(name, "How often discovery and OpenAPI were made anew.");
        let publisher = Self {
            aggregator,
            schema,
            built_in,
            extensions,
            address: OnceLock::new(),
            due: Bursts::default(),
            published: published.expect("a valid name"),
            started,
        };
        (Arc::new(publisher), starts)
    }

    pub(crate) fn register(&self, registry: &Registry) {
        registry.register(Box::new(self.published.clone())).expect("registered once");
    }

    /// Publishes for the first time.
    pub(crate) fn open(&self, address: String) {
        let _ = self.address.set(address);
        self.publish();
    }

    /// Every group-version that is served.
    pub(crate) fn served(&self) -> Vec<ServedGroupVersion> {
        let mut served = self.built_in.clone();
        served.extend(custom(&self.extensions));
        served
    }

    fn publish(&self) {
        let Some(address) = self.address.get() else { return };
        let served = self.served();
        let documents = Documents::new(&served, &self.schema, address);
        let previous = self.aggregator.openapi_documents();
        let now = SystemTime::now();
        let openapi =
            OpenApi::new(&served, self.schema.clone(), descriptions, now, previous.as_deref());
        self.aggregator.publish(documents, openapi);
        self.published.inc();
    }

    /// Works until the server stops. Changes that come in a burst are published together.
    pub(crate) async fn run(self: Arc<Self>, api: Api) {
        loop {
            self.due.next().await;
            let publisher = self.clone();
            if tokio::task::spawn_blocking(move || publisher.publish()).await.is_err() {
                tracing::error!("publishing what is served has failed");
            }
            if let Err(error) = register(&api, &self.served()).await {
                tracing::warn!("cannot register what is served: {error}");
            }
        }
    }
}

fn descriptions() -> Box<dyn Describe> {
    Box::new(Descriptions::load())
}

/// Changes that come one after the other count as one.
#[derive(Default)]
struct Bursts(Notify);

impl Bursts {
    fn change(&self) {
        self.0.notify_one();
    }

    /// Returns when there was a change and none has come since for a moment; not to wait for ever,
    /// also in the middle of a long burst.
    async fn next(&self) {
        self.0.notified().await;
        let begun = Instant::now();
        while begun.elapsed() < BURST_MAX
            && tokio::time::timeout(QUIET, self.0.notified()).await.is_ok()
        {}
    }
}

/// How long nothing changes at the end of a burst, and how long a burst may be.
const QUIET: Duration = Duration::from_millis(25);
const BURST_MAX: Duration = Duration::from_secs(2);

impl apiextensions::Listener for Publisher {
    fn changed(&self) {
        self.due.change();
    }

    fn started(&self, stored: &Arc<Kind>) {
        // Nobody follows once the server stops.
        let _ = self.started.send(stored.clone());
    }
}

/// The group-versions of custom resources. What goes away is told of with fewer verbs.
fn custom(extensions: &Resources) -> Vec<ServedGroupVersion> {
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
        }
    });
    served.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many bursts a number of changes are, each so long after the one before.
    async fn bursts(changes: u32, apart: Duration) -> usize {
        let bursts = Arc::new(Bursts::default());
        let (count, counted) = (Arc::new(std::sync::atomic::AtomicUsize::new(0)), bursts.clone());
        let counter = count.clone();
        let counting = tokio::spawn(async move {
            loop {
                counted.next().await;
                counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        });
        for _ in 0..changes {
            bursts.change();
            tokio::time::sleep(apart).await;
        }
        tokio::time::sleep(2 * QUIET).await;
        counting.abort();
        count.load(std::sync::atomic::Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn changes_in_quick_succession_are_published_once() {
        let cases = [
            (1, Duration::ZERO, 1),
            (500, Duration::ZERO, 1),
            (100, QUIET / 2, 1),
            // One publication every two seconds is all that five seconds of changes lead to.
            (500, Duration::from_millis(10), 3),
            (3, 2 * QUIET, 3),
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
