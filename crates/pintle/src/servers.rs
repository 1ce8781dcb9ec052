//! The three servers of the chain, from the front: aggregator, kube-apiserver, apiextensions-apiserver.
//! Each file shows what its server registers: routes, post-start hooks, health checks, controllers.

mod aggregator;
mod apiextensions;
mod config;
mod emulation;
mod generic;
mod kube_apiserver;

use std::sync::Arc;

use endpoints::{LoopbackClient, Resources};
use flowcontrol::FlowController;
use serve::{Claims, Delegate, lifecycle::Lifecycle};

pub(crate) use self::{
    aggregator::{AggregatorServer, REGISTRATION_GROUP, StorageVersionManager},
    apiextensions::ApiExtensionsServer,
    config::{Config, offered},
    generic::{GenericApiServer, PreShutdownHook},
    kube_apiserver::{KubeApiServer, peer_proxy, server_identity},
};
use crate::{in_process::ControllerClient, object_counts::CacheCounts};

/// Servers with what they share. A request goes to the first server that claims it.
pub(crate) struct ServerChain {
    pub(crate) config: Config,
    pub(crate) aggregator: AggregatorServer,
    pub(crate) kube_apiserver: KubeApiServer,
    pub(crate) apiextensions: ApiExtensionsServer,
    /// None: `--enable-priority-and-fairness=false`.
    pub(crate) flow_controller: Option<Arc<FlowController>>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    /// The hooks and checks of all servers: those of delegates are the front server's.
    pub(crate) generic: GenericApiServer,
}

/// kube-apiserver's `CreateServerChain`: from the end of the chain to its front.
pub(crate) fn create_server_chain(config: Config) -> ServerChain {
    let apiextensions = ApiExtensionsServer::new(&config);
    let kube_apiserver = KubeApiServer::new(&config);
    let aggregator = AggregatorServer::new(&config, &apiextensions);
    let resources = [&aggregator.resources, &kube_apiserver.resources, &apiextensions.resources];
    let local = LoopbackClient::new(&resources).behind(config.storage_version_barrier());
    config.connect_admission(&apiextensions.resources, local);
    let flow_controller = flow_controller(&config, resources.map(Arc::clone).to_vec());
    let lifecycle = Arc::new(Lifecycle::default());

    // Compat: the order of the lines is that of `/readyz?verbose`.
    let mut generic = GenericApiServer::new(&config, flow_controller.as_ref());
    apiextensions.install(&config, &mut generic);
    KubeApiServer::install(&config, &mut generic);
    aggregator.install(&config, &mut generic);
    generic.add_shutdown_check(&lifecycle);
    ServerChain {
        config,
        aggregator,
        kube_apiserver,
        apiextensions,
        flow_controller,
        lifecycle,
        generic,
    }
}

fn flow_controller(config: &Config, resources: Vec<Arc<Resources>>) -> Option<Arc<FlowController>> {
    let options = &config.options;
    let seats = options.max_requests_inflight + options.max_mutating_requests_inflight;
    let options = options.priority_and_fairness.then(|| flowcontrol::Options {
        seats: u32::try_from(seats).unwrap_or(u32::MAX),
        lists_by_size: options.feature_gates.enabled("SizeBasedListCostEstimate"),
        counts: Arc::new(CacheCounts::new(resources)),
    })?;
    Some(Arc::new(FlowController::new(options)))
}

impl ServerChain {
    /// The client of hooks and controllers.
    pub(crate) fn api(&self) -> ControllerClient {
        ControllerClient {
            local: self.local(),
            kinds: self.config.kinds.clone(),
            extensions: self.apiextensions.resources.clone(),
            remote: self.aggregator.aggregation.client.clone(),
        }
    }

    pub(crate) fn local(&self) -> LoopbackClient {
        LoopbackClient::new(&[
            &self.aggregator.resources,
            &self.kube_apiserver.resources,
            &self.apiextensions.resources,
        ])
        .behind(self.config.storage_version_barrier())
    }

    /// The servers in delegation order. What the last one doesn't serve is a 404.
    pub(crate) fn delegates(&self) -> Vec<(Arc<dyn Delegate>, Claims)> {
        let mut delegates = self.aggregator.delegates();
        delegates.extend(self.kube_apiserver.delegates());
        delegates.extend(self.apiextensions.delegates());
        delegates
    }

    /// The non-resource paths of the three servers, for the index.
    pub(crate) fn paths(&self) -> impl Fn() -> Vec<String> + Send + Sync + use<> {
        let (aggregator, kube_apiserver) = (self.aggregator.paths(), KubeApiServer::paths());
        move || {
            let mut paths = aggregator();
            paths.extend(kube_apiserver.iter().cloned());
            paths
        }
    }
}

/// A table of resources with the group-versions in it.
fn delegate(resources: &Arc<Resources>) -> (Arc<dyn Delegate>, Claims) {
    (resources.clone(), resources.claims())
}
