//! Hooks that create objects, and start the controllers that create them again.

use std::{sync::Arc, time::Duration};

use controllers::{
    DefaultServiceCidr, FlowControlBootstrap, ResourceRef, SystemNamespaces, config_map,
    ensure_flow_control_defaults, get_or_create, namespace, priority_levels,
    reconcile_bootstrap_roles,
};
use futures_util::future::try_join_all;

use crate::{
    cache_informer::CacheInformer,
    post_start_hooks::{
        HookContext, first_sync, on_runtime, retry_every_error, retry_until_deadline,
    },
};

/// `default`, `kube-system`, `kube-public`, `kube-node-lease`.
pub(super) async fn system_namespaces(cx: HookContext) -> Result<(), String> {
    let target = ResourceRef::cluster("", "v1", "namespaces");
    let objects = controllers::SYSTEM_NAMESPACES.map(namespace);
    first_sync(async || {
        let created = objects.iter().map(|object| get_or_create(&*cx.api, &target, object));
        try_join_all(created).await.map(drop)
    })
    .await;
    let (api, kinds) = (cx.api.clone(), cx.kinds_of("", &["Namespace"]));
    cx.tasks.restarting("system-namespaces-controller", move || {
        let events = CacheInformer::start(&kinds, |event| event.deleted);
        SystemNamespaces { api: api.clone() }.run(events)
    });
    Ok(())
}

/// ConfigMap with the date since which uses of legacy service account tokens are tracked.
pub(super) async fn token_tracking(cx: HookContext) -> Result<(), String> {
    let target = ResourceRef::cluster("", "v1", "configmaps").in_namespace("kube-system");
    let today = meta::time::now();
    let today = today.split('T').next().unwrap_or_default().to_owned();
    let name = "kube-apiserver-legacy-service-account-token-tracking";
    let object = config_map(name, &[("since", today)]);
    cx.after("start-system-namespaces-controller").await;
    let created =
        retry_until_deadline(async || get_or_create(&*cx.api, &target, &object).await.map(drop));
    let Err(error) = created.await else { return Ok(()) };
    tracing::error!(error, name, "cannot create the ConfigMap; retrying");
    let api = cx.api.clone();
    cx.tasks.restarting("legacy-service-account-token-tracking", move || {
        let (api, target, object) = (api.clone(), target.clone(), object.clone());
        async move {
            while let Err(error) = get_or_create(&*api, &target, &object).await {
                tracing::warn!(%error, name, "cannot create the ConfigMap yet");
                tokio::time::sleep(TRACKING_RETRY_DELAY).await;
            }
        }
    });
    Ok(())
}

const TRACKING_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The default roles and bindings of RBAC.
pub(super) async fn bootstrap_roles(cx: HookContext) -> Result<(), String> {
    cx.after("start-system-namespaces-controller").await;
    let is_on = |gate: &str| cx.options.feature_gates.enabled(gate);
    // More objects than all other hooks have together: another thread creates them meanwhile.
    let reconciled = async || on_runtime(reconcile_bootstrap_roles(cx.api.clone(), is_on)).await;
    retry_every_error(ROLES_TIMEOUT, reconciled)
        .await
        .map_err(|error| format!("unable to initialize roles: {error}"))
}

/// Compat: the times that kube-apiserver gives these hooks before they end it.
const ROLES_TIMEOUT: Duration = Duration::from_secs(30);
const FLOW_CONTROL_TIMEOUT: Duration = Duration::from_mins(5);

/// `system-node-critical` and `system-cluster-critical`.
pub(super) async fn priority_classes(cx: HookContext) -> Result<(), String> {
    let target = ResourceRef::cluster("scheduling.k8s.io", "v1", "priorityclasses");
    if cx.kind_of(&target.gvr).is_none() {
        return Ok(());
    }
    let classes = controllers::priority_classes();
    retry_until_deadline(async || {
        let created = classes.iter().map(|class| get_or_create(&*cx.api, &target, class));
        try_join_all(created).await.map(drop)
    })
    .await
    .map_err(|error| format!("unable to add default system priority classes: {error}"))
}

/// The default FlowSchemas and PriorityLevelConfigurations.
pub(super) async fn flow_control(cx: HookContext) -> Result<(), String> {
    if cx.kind_of(&priority_levels().gvr).is_none() {
        return Ok(());
    }
    let ensured = async || ensure_flow_control_defaults(&*cx.api).await;
    retry_every_error(FLOW_CONTROL_TIMEOUT, ensured).await?;
    let api = cx.api.clone();
    cx.tasks.restarting("priority-and-fairness-config-producer", move || {
        FlowControlBootstrap { api: api.clone() }.run()
    });
    Ok(())
}

/// ServiceCIDR `kubernetes`, and the controller that creates it again.
pub(super) async fn service_cidr(cx: HookContext) -> Result<(), String> {
    let Some(kind) = cx.kind_of(&DefaultServiceCidr::target().gvr) else { return Ok(()) };
    let ranges = cx.options.service_cluster_ip_ranges.iter();
    let ranges: Vec<String> = ranges.map(ToString::to_string).collect();
    let api = cx.api.clone();
    let cidr = move || DefaultServiceCidr { api: api.clone(), ranges: ranges.clone() };
    first_sync(async || cidr().sync().await).await;
    let kinds: [Arc<_>; 1] = [kind];
    cx.tasks.restarting("default-service-cidr-controller", move || {
        cidr().run(CacheInformer::start(&kinds, |event| {
            event.deleted && event.entry.name == DefaultServiceCidr::NAME
        }))
    });
    Ok(())
}
