//! ResourceQuotas as admission and the quota controller see them: from the watch caches and through the
//! API.

use std::sync::{Arc, OnceLock};

use admission::quota::{Evaluators, QuotaAccessor, ResourceList, Scope, add, total_usage};
use controllers::QuotaUsage;
use endpoints::{LoopbackClient, Target};
use meta::{
    ApiError, GroupResource, GroupVersionResource, Map, Str, Value, selector::LabelSelector,
};
use registry::{Kind, Pinned, Storage};

use crate::in_process::Objects;

fn resource_quotas() -> GroupVersionResource {
    GroupVersionResource {
        group: "".into(),
        version: "v1".into(),
        resource: "resourcequotas".into(),
    }
}

/// Quotas for the admission plugin. Plugins are built before the servers that they are a part of, so it
/// is connected afterwards.
#[derive(Default)]
pub(crate) struct Quotas {
    connected: OnceLock<(Arc<Storage>, LoopbackClient)>,
}

impl Quotas {
    pub(crate) fn connect(&self, kinds: &[Arc<Kind>], client: LoopbackClient) {
        let mut kinds = kinds.iter();
        let kind = kinds.find(|kind| kind.facts.group_version_resource() == resource_quotas());
        if let Some(storage) = kind.and_then(|kind| kind.storage.clone()) {
            let _ = self.connected.set((storage, client));
        }
    }

    fn client(&self) -> Result<&LoopbackClient, ApiError> {
        let connected = self.connected.get().map(|(_, client)| client);
        connected.ok_or_else(|| ApiError::internal("the server is still starting"))
    }
}

impl QuotaAccessor for Quotas {
    fn has_quotas(&self, namespace: &str) -> bool {
        self.connected.get().is_some_and(|(storage, _)| storage.count(namespace) > 0)
    }

    fn quotas<'a>(&'a self, namespace: &'a str) -> Pinned<'a, Result<Vec<Value>, ApiError>> {
        Box::pin(async move {
            let gvr = resource_quotas();
            let target = Target { namespace, ..Target::from(&gvr) };
            Ok(self.client()?.list(&target).await?.0)
        })
    }

    fn update_status<'a>(&'a self, quota: &'a Value) -> Pinned<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let gvr = resource_quotas();
            let target = Target {
                namespace: quota.str_at(&["metadata", "namespace"]),
                name: quota.str_at(&["metadata", "name"]),
                subresource: "status",
                ..Target::from(&gvr)
            };
            self.client()?.update(&target, quota).await.map(drop)
        })
    }
}

/// Usage for the quota controller, counted from the watch caches.
pub(crate) struct CountedUsage {
    pub(crate) evaluators: Arc<Evaluators>,
    pub(crate) objects: Arc<Objects>,
}

impl CountedUsage {
    async fn of_resource(
        &self,
        resource: &GroupResource,
        evaluator: &dyn admission::quota::Evaluator,
        scopes: &[Scope],
        namespace: &str,
    ) -> Result<Option<ResourceList>, ApiError> {
        let Some(kind) = self.objects.any_version(resource) else { return Ok(None) };
        if let (Some(each), Some(storage)) = (evaluator.usage_of_any(), kind.storage.as_ref()) {
            // Counted without being decoded. A quota with scopes is not about these.
            let count = if scopes.is_empty() { storage.count(namespace) as i64 } else { 0 };
            let multiply = |(name, mut amount): (Str, meta::quantity::Quantity)| {
                amount.mul(count);
                (name, amount)
            };
            return Ok(Some(each.into_iter().map(multiply).collect()));
        }
        let objects = kind.select_objects(namespace, &LabelSelector::default()).await?;
        Ok(Some(total_usage(evaluator, scopes, objects.iter())))
    }
}

impl QuotaUsage for CountedUsage {
    fn used<'a>(&'a self, quota: &'a Value) -> Pinned<'a, Result<Map, ApiError>> {
        Box::pin(async move {
            let namespace = quota.str_at(&["metadata", "namespace"]);
            let hard = quota.at(&["spec", "hard"]).and_then(Value::as_object);
            let names: Vec<&str> =
                hard.into_iter().flat_map(Map::iter).map(|(name, _)| name.as_str()).collect();
            let scopes = Scope::of_quota(quota);
            let mut used = ResourceList::new();
            for (resource, evaluator) in self.evaluators.measuring(&names) {
                let counted = self.of_resource(&resource, &*evaluator, &scopes, namespace).await?;
                let Some(counted) = counted else { continue };
                // Measured, even if nothing uses it.
                for name in names.iter().filter(|name| evaluator.measures(name)) {
                    used.entry((*name).into()).or_default();
                }
                add(&mut used, &counted);
            }
            let named = names.into_iter().filter_map(|name| {
                Some((Str::from(name), Value::from(used.get(name)?.to_string())))
            });
            Ok(named.collect())
        })
    }
}
