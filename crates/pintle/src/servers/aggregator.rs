//! The front server: discovery and OpenAPI of the whole, and APIServices, local and remote.

mod aggregation;
mod storage_versions;

use std::sync::Arc;

use aggregator::{Aggregator, ProxyHandler};
use endpoints::Resources;
use serve::{Claims, Delegate, health::Check};
use tokio::sync::watch;

use self::aggregation::Aggregation;
pub(crate) use self::storage_versions::StorageVersionManager;
use super::{ApiExtensionsServer, Config, GenericApiServer, delegate};
use crate::{
    apiservice_autoregistration::Autoregistration,
    discovery_publisher::{CachedKinds, DiscoveryPublisher},
    post_start_hooks::first_sync,
};

pub(crate) const REGISTRATION_GROUP: &str = "apiregistration.k8s.io";

pub(crate) struct AggregatorServer {
    pub(crate) aggregator: Arc<Aggregator>,
    /// `apiregistration.k8s.io`.
    pub(crate) resources: Arc<Resources>,
    pub(crate) publisher: Arc<DiscoveryPublisher>,
    /// Custom resources that have a cache, for the garbage collector.
    pub(crate) custom_kinds: watch::Receiver<CachedKinds>,
    /// APIServices of other servers.
    pub(crate) aggregation: Arc<Aggregation>,
}

impl AggregatorServer {
    pub(super) fn new(config: &Config, apiextensions: &ApiExtensionsServer) -> Self {
        let aggregator = Arc::new(Aggregator::default());
        let (publisher, custom_kinds) = DiscoveryPublisher::new(
            aggregator.clone(),
            config.schema.clone(),
            config.group_versions.clone(),
            apiextensions.resources.clone(),
        );
        let resources = config.resources("kube-aggregator", &|group| group == REGISTRATION_GROUP);
        let aggregation = Arc::new(Aggregation::new(config, &publisher));
        aggregator.connect(aggregation.registration.clone());
        if let Some(peers) = &config.peer_proxy {
            publisher.connect_peers(peers.clone());
        }
        Self { aggregator, resources, publisher, custom_kinds, aggregation }
    }

    pub(super) fn delegates(&self) -> Vec<(Arc<dyn Delegate>, Claims)> {
        let proxy = ProxyHandler(self.aggregation.registration.clone());
        vec![
            (self.aggregator.clone(), Aggregator::claims()),
            delegate(&self.resources),
            // Before the local servers: an APIService decides which server answers a group-version.
            (Arc::new(proxy), ProxyHandler::claims()),
        ]
    }

    pub(crate) fn register_metrics(&self, registry: &prometheus::Registry) {
        self.publisher.register(registry);
        Aggregator::register_metrics(registry);
        self.aggregation.register_metrics(registry);
    }

    pub(super) fn paths(&self) -> impl Fn() -> Vec<String> + Send + Sync + use<> {
        let aggregator = self.aggregator.clone();
        move || aggregator.paths()
    }

    pub(super) fn install(&self, config: &Config, server: &mut GenericApiServer) {
        // The certificate files are looked at with each connection, so there is nothing to run.
        server.add_post_start_hook("aggregator-reload-proxy-client-cert", async |_| Ok(()));
        server.add_post_start_hook("start-kube-aggregator-informers", async |_| Ok(()));
        let of = || self.aggregation.clone();
        let own = of();
        server.add_post_start_hook(
            "apiservice-status-local-available-controller",
            async move |cx| {
                // An APIService of a local group is created with its condition.
                cx.after("kube-apiserver-autoregistration").await;
                if cx.api.serves_api_services() {
                    own.start_local_availability(&cx);
                }
                Ok(())
            },
        );
        let own = of();
        server.add_post_start_hook(
            "apiservice-status-remote-available-controller",
            async move |cx| {
                cx.after("apiservice-registration-controller").await;
                if cx.api.serves_api_services() {
                    own.start_remote_availability(&cx);
                }
                Ok(())
            },
        );
        let own = of();
        server.add_post_start_hook("apiservice-registration-controller", async move |cx| {
            if cx.api.serves_api_services() {
                own.start_registration(&cx).await?;
            }
            Ok(())
        });
        let own = of();
        server.add_post_start_hook("apiservice-discovery-controller", async move |cx| {
            cx.after("apiservice-registration-controller").await;
            own.start_discovery(&cx);
            Ok(())
        });
        if let Some(manager) = &config.storage_versions {
            manager.install(server);
        }
        let publisher = self.publisher.clone();
        let hook = server.add_post_start_hook("kube-apiserver-autoregistration", async move |cx| {
            if !cx.api.serves_api_services() {
                return Ok(());
            }
            let registration = Autoregistration::new(cx.api.clone(), publisher);
            first_sync(async || registration.sync_at_start().await).await;
            registration.start(&cx);
            Ok(())
        });
        server.add_check(Check {
            name: "autoregister-completion".to_owned(),
            ..hook.check("kube-apiserver-autoregistration")
        });
        let (own, publisher) = (of(), self.publisher.clone());
        server.add_post_start_hook("apiservice-openapi-controller", async move |cx| {
            cx.after("apiservice-registration-controller").await;
            own.start_openapi(&cx);
            cx.tasks.restarting("discovery-publisher", move || publisher.clone().run());
            Ok(())
        });
        let own = of();
        server.add_post_start_hook("apiservice-openapiv3-controller", async move |cx| {
            cx.after("apiservice-registration-controller").await;
            own.start_openapiv3(&cx);
            Ok(())
        });
    }
}
