//! ResourceQuotas as admission and the quota controller see them: from the watch caches and through the
//! API.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use admission::quota::{
    Evaluators, PendingCharges, QuotaAccessor, ResourceList, Scope, add, total_usage,
};
use controllers::{MeasuredUsage, QuotaUsage};
use endpoints::{LoopbackClient, ResourceRef};
use meta::{
    ApiError, GroupResource, GroupVersionResource, Map, Str, Value, selector::LabelSelector,
};
use registry::{BoxFuture, Kind, Storage};

use crate::{
    cache_informer::CacheEvent,
    foreign_charges::{ForeignCharges, ForeignUsage, used},
    in_process::{CachedObjects, tree},
};

fn resource_quotas() -> GroupVersionResource {
    GroupVersionResource {
        group: "".into(),
        version: "v1".into(),
        resource: "resourcequotas".into(),
    }
}

/// Quotas for the admission plugin. Plugins are built before the servers that they are a part of, so it
/// is connected afterwards.
pub(crate) struct Quotas {
    pub(crate) evaluators: Arc<Evaluators>,
    claim_objects: Arc<CachedClaimObjects>,
    connected: OnceLock<(Arc<Storage>, LoopbackClient)>,
    pending: Arc<PendingCharges>,
    /// None: no other server has this store.
    foreign: Option<ForeignCharges>,
}

impl Quotas {
    pub(crate) fn new(is_enabled: &dyn Fn(&str) -> bool, store_is_shared: bool) -> Self {
        let claim_objects = Arc::new(CachedClaimObjects::default());
        Self {
            evaluators: Arc::new(builtin::quota_evaluators(is_enabled, claim_objects.clone())),
            claim_objects,
            connected: OnceLock::new(),
            pending: Arc::default(),
            foreign: store_is_shared.then(ForeignCharges::default),
        }
    }

    /// Follows the charges of other servers. For every change of a quota, and every listed quota.
    pub(crate) fn observe(&self, event: &CacheEvent<'_>) {
        let Some(foreign) = &self.foreign else { return };
        if event.resource.gvr != resource_quotas() {
            return;
        }
        let Ok(quota) = tree(event.entry) else { return };
        if event.deleted {
            foreign.deleted(&quota);
        } else {
            let previous = event.previous.map(tree).and_then(Result::ok);
            foreign.changed(&quota, previous.as_ref());
        }
    }

    fn wrote(&self, quota: &Value) {
        if let Some(foreign) = &self.foreign {
            foreign.wrote(quota);
        }
    }

    pub(crate) fn connect(&self, kinds: &[Arc<Kind>], client: LoopbackClient) {
        self.claim_objects.connect(kinds);
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

    fn quotas<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<Vec<Value>, ApiError>> {
        Box::pin(async move {
            let gvr = resource_quotas();
            let target = ResourceRef { namespace, ..ResourceRef::from(&gvr) };
            Ok(self.client()?.list(&target).await?.0)
        })
    }

    fn update_status<'a>(&'a self, quota: &'a Value) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let gvr = resource_quotas();
            let target = ResourceRef {
                namespace: quota.str_at(&["metadata", "namespace"]),
                name: quota.str_at(&["metadata", "name"]),
                subresource: "status",
                ..ResourceRef::from(&gvr)
            };
            let written = self.client()?.update(&target, quota).await?;
            self.wrote(&written);
            Ok(())
        })
    }

    fn pending(&self) -> &Arc<PendingCharges> {
        &self.pending
    }
}

/// What the evaluator of ResourceClaims looks up.
#[derive(Default)]
struct CachedClaimObjects {
    connected: OnceLock<ClaimCaches>,
}

struct ClaimCaches {
    device_classes: Option<Arc<Storage>>,
    pods: Option<Arc<Storage>>,
    claims: Option<Arc<Storage>>,
}

impl CachedClaimObjects {
    fn connect(&self, kinds: &[Arc<Kind>]) {
        let storage = |group: &str, resource: &str| {
            let is_it = |kind: &&Arc<Kind>| {
                kind.facts.plural == resource && kind.gvk().group == group && kind.storage.is_some()
            };
            kinds.iter().find(is_it)?.storage.clone()
        };
        let group = "resource.k8s.io";
        let _ = self.connected.set(ClaimCaches {
            device_classes: storage(group, "deviceclasses"),
            pods: storage("", "pods"),
            claims: storage(group, "resourceclaims"),
        });
    }

    fn objects(
        &self,
        cache: fn(&ClaimCaches) -> &Option<Arc<Storage>>,
        within: &str,
    ) -> Vec<Value> {
        let Some(storage) = self.connected.get().and_then(|caches| cache(caches).as_ref()) else {
            return Vec::new();
        };
        let prefix = format!("{}{within}", storage.prefix);
        let snapshot = storage.cache.snapshot();
        snapshot.range(&prefix, None).filter_map(|entry| tree(entry).ok()).collect()
    }
}

impl builtin::ClaimObjects for CachedClaimObjects {
    fn device_classes(&self) -> Vec<Value> {
        self.objects(|caches| &caches.device_classes, "")
    }

    fn pod(&self, namespace: &str, name: &str) -> Option<Value> {
        let storage = self.connected.get()?.pods.as_ref()?;
        let key = format!("{}{namespace}/{name}", storage.prefix);
        tree(storage.cache.snapshot().get(&key)?).ok()
    }

    fn claims(&self, namespace: &str) -> Vec<Value> {
        self.objects(|caches| &caches.claims, &format!("{namespace}/"))
    }
}

/// Usage for the quota controller, counted from the watch caches.
pub(crate) struct CountedUsage {
    pub(crate) objects: Arc<CachedObjects>,
    pub(crate) quotas: Arc<Quotas>,
}

/// A charge of this server is settled soon, and an event arrives soon.
const SOON: Duration = Duration::from_millis(100);

impl CountedUsage {
    async fn of_resource(
        &self,
        resource: &GroupResource,
        evaluator: &dyn admission::quota::Evaluator,
        scopes: &[Scope],
        namespace: &str,
    ) -> Result<Option<ResourceList>, ApiError> {
        let Some(kind) = self.objects.any_version(resource) else { return Ok(None) };
        if let Some(storage) = &kind.storage {
            // What is not pending any more has to be counted.
            let fresh = storage.cache.fresh().await;
            fresh.map_err(|error| ApiError::internal(error.to_string()))?;
        }
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
    fn used<'a>(&'a self, quota: &'a Value) -> BoxFuture<'a, Result<MeasuredUsage, ApiError>> {
        Box::pin(async move {
            let namespace = quota.str_at(&["metadata", "namespace"]);
            // Before anything is counted: see `PendingCharges::of_quota`.
            let (uncounted, count_again) = self.uncounted(quota)?;
            let hard = quota.at(&["spec", "hard"]).and_then(Value::as_object);
            let names: Vec<&str> =
                hard.into_iter().flat_map(Map::iter).map(|(name, _)| name.as_str()).collect();
            let scopes = Scope::of_quota(quota);
            let mut used = ResourceList::new();
            for (resource, evaluator) in self.quotas.evaluators.measuring(&names) {
                let counted = self.of_resource(&resource, &*evaluator, &scopes, namespace).await?;
                let Some(counted) = counted else { continue };
                // Measured, even if nothing uses it.
                for name in names.iter().filter(|name| evaluator.measures(name)) {
                    used.entry((*name).into()).or_default();
                }
                add(&mut used, &counted);
            }
            keep_charges(&mut used, uncounted, quota);
            let named = names.into_iter().filter_map(|name| {
                Some((Str::from(name), Value::from(used.get(name)?.to_string())))
            });
            Ok(MeasuredUsage { used: named.collect(), count_again })
        })
    }

    fn wrote(&self, quota: &Value) {
        self.quotas.wrote(quota);
    }
}

/// What was charged and may not be stored yet.
enum UnstoredUsage {
    Charges(ResourceList),
    /// Any part of the usage.
    Unknown,
}

impl CountedUsage {
    fn uncounted(&self, quota: &Value) -> Result<(UnstoredUsage, Option<Duration>), ApiError> {
        let of = |field| quota.str_at(&["metadata", field]);
        let foreign = self.quotas.foreign.as_ref().map(|foreign| foreign.of_quota(quota));
        let mut charges = self.quotas.pending.of_quota(of("namespace"), of("name"));
        let mut count_again = (!charges.is_empty()).then_some(SOON);
        match foreign {
            None => {}
            Some(ForeignUsage::Charges(foreign, settled)) => {
                add(&mut charges, &foreign);
                count_again = count_again.or(settled);
            }
            Some(ForeignUsage::Unknown(settled)) => {
                return Ok((UnstoredUsage::Unknown, Some(settled)));
            }
            Some(ForeignUsage::Behind) => {
                return Err(ApiError::internal("the quota has changed meanwhile"));
            }
        }
        Ok((UnstoredUsage::Charges(charges), count_again))
    }
}

/// Adds to the counted usage what may be missing in it. The usage so far has all charges, so that it is
/// never raised above it on their account.
fn keep_charges(counted: &mut ResourceList, uncounted: UnstoredUsage, quota: &Value) {
    for (name, known) in used(quota) {
        let Some(counted) = counted.get_mut(&name) else { continue };
        if *counted >= known {
            continue;
        }
        match &uncounted {
            UnstoredUsage::Unknown => *counted = known,
            UnstoredUsage::Charges(charges) => {
                let Some(charge) = charges.get(&name) else { continue };
                counted.add(charge);
                if *counted > known {
                    *counted = known;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use meta::{quantity::Quantity, value};

    use super::*;

    /// Usage in the status, counted, charged and not stored, and the usage then.
    #[test]
    fn charges_are_kept_and_the_rest_is_taken_back() {
        let list =
            |pods: &str| ResourceList::from([("pods".into(), Quantity::parse(pods).unwrap())]);
        let cases = [
            ("5", "3", Some("0"), "3"),
            ("5", "3", Some("1"), "4"),
            // Stored after the charges were read: counted twice.
            ("5", "5", Some("2"), "5"),
            ("5", "4", Some("2"), "5"),
            ("5", "6", Some("2"), "6"),
            ("5", "3", None, "5"),
            ("5", "6", None, "6"),
        ];
        for (known, counted, charged, expected) in cases {
            let quota = value!({"status": {"used": {"pods": known, "other": "1"}}});
            let uncounted = charged
                .map_or(UnstoredUsage::Unknown, |charged| UnstoredUsage::Charges(list(charged)));
            let mut usage = list(counted);
            keep_charges(&mut usage, uncounted, &quota);
            assert_eq!(usage, list(expected), "{known} {counted} {charged:?}");
        }
    }
}
