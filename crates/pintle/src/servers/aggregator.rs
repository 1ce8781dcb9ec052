//! The front server: discovery and OpenAPI of the whole, and APIServices.

use std::sync::Arc;

use aggregator::Aggregator;
use endpoints::Resources;
use serve::{Claims, Delegate, health::Check};
use tokio::sync::watch;

use super::{ApiExtensionsServer, Config, GenericApiServer, delegate};
use crate::{
    apiservice_autoregistration::sync_api_services,
    discovery_publisher::{CachedKinds, DiscoveryPublisher},
    post_start_hooks::retry_until_deadline,
};

pub(crate) const REGISTRATION_GROUP: &str = "apiregistration.k8s.io";

pub(crate) struct AggregatorServer {
    pub(crate) aggregator: Arc<Aggregator>,
    /// `apiregistration.k8s.io`.
    pub(crate) resources: Arc<Resources>,
    pub(crate) publisher: Arc<DiscoveryPublisher>,
    /// Custom resources that have a cache, for the garbage collector.
    pub(crate) custom_kinds: watch::Receiver<CachedKinds>,
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
        Self { aggregator, resources, publisher, custom_kinds }
    }

    pub(super) fn delegates(&self) -> Vec<(Arc<dyn Delegate>, Claims)> {
        vec![(self.aggregator.clone(), Aggregator::claims()), delegate(&self.resources)]
    }

    pub(super) fn paths(&self) -> impl Fn() -> Vec<String> + Send + Sync + use<> {
        let aggregator = self.aggregator.clone();
        move || aggregator.paths()
    }

    pub(super) fn install(&self, _config: &Config, server: &mut GenericApiServer) {
        let registered = {
            let publisher = self.publisher.clone();
            async move |cx: crate::post_start_hooks::HookContext| {
                retry_until_deadline(async || sync_api_services(&cx.api, &publisher.served()).await)
                    .await
            }
        };
        let publisher = self.publisher.clone();
        server.add_post_start_hook("start-kube-aggregator-informers", async |_| Ok(()));
        server.add_post_start_hook("apiservice-status-local-available-controller", async |cx| {
            // An APIService of a local group is created with its condition.
            cx.after("kube-apiserver-autoregistration").await;
            Ok(())
        });
        server.add_post_start_hook("apiservice-registration-controller", async |_| Ok(()));
        let hook = server.add_post_start_hook("kube-apiserver-autoregistration", registered);
        server.add_check(Check {
            name: "autoregister-completion".to_owned(),
            ..hook.check("kube-apiserver-autoregistration")
        });
        server.add_post_start_hook("apiservice-openapi-controller", async move |cx| {
            // Registers the APIServices of custom resources as well, and must not do so at once with
            // the hook above.
            cx.after("kube-apiserver-autoregistration").await;
            cx.tasks.restarting("discovery-publisher", move || {
                let (publisher, api) = (publisher.clone(), cx.api.clone());
                async move { publisher.run(&api).await }
            });
            Ok(())
        });
        server.add_post_start_hook("apiservice-openapiv3-controller", async |cx| {
            cx.after("apiservice-openapi-controller").await;
            Ok(())
        });
    }
}
