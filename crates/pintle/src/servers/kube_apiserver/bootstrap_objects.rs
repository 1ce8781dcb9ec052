//! Hooks that create objects, and start the controllers that create them again.

use std::sync::Arc;

use controllers::{
    DefaultServiceCidr, FlowControlBootstrap, SystemNamespaces, Target, config_map,
    ensure_flow_control_defaults, get_or_create, namespace, priority_levels,
    reconcile_bootstrap_roles,
};
use futures_util::future::try_join_all;

use crate::{
    cache_informer::CacheInformer,
    post_start_hooks::{HookContext, retry_until_deadline},
};

/// `default`, `kube-system`, `kube-public`, `kube-node-lease`.
pub(super) async fn system_namespaces(cx: HookContext) -> Result<(), String> {
    let target = Target::cluster("", "v1", "namespaces");
    let objects = controllers::SYSTEM_NAMESPACES.map(namespace);
    retry_until_deadline(async || {
        let created = objects.iter().map(|object| get_or_create(&*cx.api, &target, object));
        try_join_all(created).await.map(drop)
    })
    .await?;
    let (api, kinds) = (cx.api.clone(), cx.kinds_of("", &["Namespace"]));
    cx.tasks.restarting("system-namespaces-controller", move || {
        let events = CacheInformer::start(&kinds, |event| event.deleted);
        SystemNamespaces { api: api.clone() }.run(events)
    });
    Ok(())
}

/// ConfigMap with the date since which uses of legacy service account tokens are tracked.
pub(super) async fn token_tracking(cx: HookContext) -> Result<(), String> {
    let target = Target::cluster("", "v1", "configmaps").in_namespace("kube-system");
    let today = meta::time::now();
    let today = today.split('T').next().unwrap_or_default().to_owned();
    let name = "kube-apiserver-legacy-service-account-token-tracking";
    let object = config_map(name, &[("since", today)]);
    cx.after("start-system-namespaces-controller").await;
    retry_until_deadline(async || get_or_create(&*cx.api, &target, &object).await.map(drop)).await
}

/// The default roles and bindings of RBAC.
pub(super) async fn bootstrap_roles(cx: HookContext) -> Result<(), String> {
    cx.after("start-system-namespaces-controller").await;
    retry_until_deadline(async || reconcile_bootstrap_roles(&*cx.api).await).await
}

/// `system-node-critical` and `system-cluster-critical`.
pub(super) async fn priority_classes(cx: HookContext) -> Result<(), String> {
    let target = Target::cluster("scheduling.k8s.io", "v1", "priorityclasses");
    if cx.kind_of(&target.gvr).is_none() {
        return Ok(());
    }
    let classes = controllers::priority_classes();
    retry_until_deadline(async || {
        let created = classes.iter().map(|class| get_or_create(&*cx.api, &target, class));
        try_join_all(created).await.map(drop)
    })
    .await
}

/// The default FlowSchemas and PriorityLevelConfigurations.
pub(super) async fn flow_control(cx: HookContext) -> Result<(), String> {
    if cx.kind_of(&priority_levels().gvr).is_none() {
        return Ok(());
    }
    retry_until_deadline(async || ensure_flow_control_defaults(&*cx.api).await).await?;
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
    retry_until_deadline(async || cidr().sync().await).await?;
    let kinds: [Arc<_>; 1] = [kind];
    cx.tasks.restarting("default-service-cidr-controller", move || {
        cidr().run(CacheInformer::start(&kinds, |event| {
            event.deleted && event.entry.name == DefaultServiceCidr::NAME
        }))
    });
    Ok(())
}
