//! kube-apiserver's `ipallocator-repair-controller`: Services and IPAddresses are compared when one of them is written,
//! and all of them every three minutes. Node ports are compared every three minutes only.

use std::{slice, sync::Arc};

use builtin::RestStorageProvider;
use controllers::{
    BoxFuture, Key, ObjectEvent, ReconcileResult, Reconciler, ResourceRef, run_workqueue,
};
use meta::ApiError;
use registry::Kind;

use crate::{
    cache_informer::CacheInformer,
    post_start_hooks::{HookContext, retry_until_deadline},
};

/// Repairs everything once, and starts the controllers.
pub(super) async fn start(
    cx: HookContext,
    rest_storage: Arc<RestStorageProvider>,
) -> Result<(), String> {
    retry_until_deadline(async || rest_storage.repair(&cx.kinds).await).await?;
    cx.tasks.critical("allocation-repair", rest_storage.keep_repairing(&cx.kinds));
    let services = ResourceRef::cluster("", "v1", "services").gvr;
    let addresses = ResourceRef::cluster("networking.k8s.io", "v1", "ipaddresses").gvr;
    let (Some(services), Some(addresses)) = (cx.kind_of(&services), cx.kind_of(&addresses)) else {
        return Ok(());
    };
    let (provider, kinds) = (rest_storage.clone(), cx.kinds.clone());
    cx.tasks.restarting("service-ip-repair", move || {
        let events = CacheInformer::start(slice::from_ref(&services), |event| !event.deleted);
        run_workqueue(ServiceRepair(provider.clone(), kinds.clone()), events)
    });
    let kinds = cx.kinds.clone();
    cx.tasks.restarting("ip-address-repair", move || {
        let events = CacheInformer::start(slice::from_ref(&addresses), |event| !event.deleted);
        run_workqueue(AddressRepair(rest_storage.clone(), kinds.clone()), events)
    });
    Ok(())
}

/// Each Service has its addresses.
struct ServiceRepair(Arc<RestStorageProvider>, Arc<[Arc<Kind>]>);

impl Reconciler for ServiceRepair {
    const QUEUE: &'static str = "services";

    fn keys_for(&self, event: &ObjectEvent) -> Vec<Key> {
        vec![(event.namespace.clone(), event.name.clone())]
    }

    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<ReconcileResult, ApiError>> {
        Box::pin(async move {
            self.0.repair_service(&self.1, &key.0, &key.1).await?;
            Ok(ReconcileResult::Done)
        })
    }
}

/// Each address is of a Service.
struct AddressRepair(Arc<RestStorageProvider>, Arc<[Arc<Kind>]>);

impl Reconciler for AddressRepair {
    const QUEUE: &'static str = "ipaddresses";

    fn keys_for(&self, event: &ObjectEvent) -> Vec<Key> {
        vec![(event.namespace.clone(), event.name.clone())]
    }

    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<ReconcileResult, ApiError>> {
        Box::pin(async move {
            let again = self.0.repair_address(&self.1, &key.1).await?;
            Ok(again.map_or(ReconcileResult::Done, ReconcileResult::RequeueAfter))
        })
    }
}
