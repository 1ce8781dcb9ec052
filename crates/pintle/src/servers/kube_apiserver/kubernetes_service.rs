//! Service `default/kubernetes` with the endpoint of this server.

use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use builtin::RestStorageProvider;
use controllers::{EndpointReconciler, KubernetesService};
use meta::ApiError;
use registry::Kind;

use crate::{
    cache_informer::CacheInformer,
    options::ReconcilerType,
    post_start_hooks::{HookContext, first_sync},
};

/// The hook that creates the service, and the one that takes this server out of it.
#[derive(Clone)]
pub(super) struct KubernetesServiceHooks {
    rest_storage: Arc<RestStorageProvider>,
    /// Set once it is to be reconciled.
    service: Arc<OnceLock<Arc<KubernetesService>>>,
}

impl KubernetesServiceHooks {
    pub(super) fn new(rest_storage: &Arc<RestStorageProvider>) -> Self {
        Self { rest_storage: rest_storage.clone(), service: Arc::default() }
    }

    pub(super) async fn start(self, cx: HookContext) -> Result<(), String> {
        let service = Arc::new(KubernetesService {
            api: cx.api.clone(),
            address: cx.options.kubernetes_service_ip,
            advertised: cx.options.advertise_address,
            secure_port: cx.port,
            node_port: cx.options.kubernetes_service_node_port,
            writes_slices: !cx.kinds_of("discovery.k8s.io", &["EndpointSlice"]).is_empty(),
            endpoints: match (cx.options.endpoint_reconciler, self.rest_storage.master_leases()) {
                (ReconcilerType::None, _) => EndpointReconciler::None,
                (ReconcilerType::MasterCount(count), _) => EndpointReconciler::MasterCount(count),
                // No other server shares the embedded store.
                (ReconcilerType::Lease, None) => EndpointReconciler::Single,
                (ReconcilerType::Lease, Some(leases)) => {
                    EndpointReconciler::Lease(Arc::new(Leases(leases)))
                }
            },
        });
        cx.after("start-system-namespaces-controller").await;
        // Its address and port must not have been given to another service.
        cx.after("start-service-ip-repair-controllers").await;
        drop(self.service.set(service.clone()));
        first_sync(async || service.sync().await).await;
        let wanted = ["Service", "Endpoints", "EndpointSlice"];
        let kinds = cx.kinds.iter().filter(|kind| wanted.contains(&kind.gvk().kind.as_str()));
        let kinds: Vec<Arc<Kind>> = kinds.cloned().collect();
        cx.tasks.restarting("kubernetes-service-controller", move || {
            let events = CacheInformer::start(&kinds, |event| {
                let named = event.entry.name == "kubernetes";
                event.deleted && event.entry.namespace == "default" && named
            });
            let service = service.clone();
            async move { service.run(events).await }
        });
        Ok(())
    }

    /// Removes this server from the endpoints.
    pub(super) async fn stop(self) -> Result<(), String> {
        let Some(service) = self.service.get() else { return Ok(()) };
        let left = tokio::time::timeout(LEAVE_TIMEOUT, service.stop()).await;
        left.unwrap_or_else(|_| Err(ApiError::internal("the store does not answer")))
            .map_err(|error| error.to_string())
    }
}

/// A store that does not answer must not block the shutdown.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Adapts the store's leases to the controller's trait.
struct Leases(Arc<builtin::MasterLeases>);

impl controllers::MasterLeases for Leases {
    fn renew(&self, address: IpAddr) -> controllers::BoxFuture<'_, Result<(), ApiError>> {
        Box::pin(self.0.renew(address))
    }

    fn addresses(&self) -> controllers::BoxFuture<'_, Result<Vec<IpAddr>, ApiError>> {
        Box::pin(self.0.addresses())
    }

    fn remove(&self, address: IpAddr) -> controllers::BoxFuture<'_, Result<(), ApiError>> {
        Box::pin(self.0.leave(address))
    }
}
