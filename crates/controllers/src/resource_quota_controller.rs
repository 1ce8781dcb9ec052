//! kube-controller-manager's resourcequota-controller: keeps the status of ResourceQuotas. Admission adds
//! what new objects use; this controller takes back what deleted objects used, and counts anew when a
//! quota changes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use meta::{ApiError, Map, Str, Value, quantity::Quantity};
use tokio::time::Instant;

use crate::{
    ApiClient, BoxFuture, Informer, ObjectEvent, ResourceRef,
    workqueue::{self, Key, ReconcileResult, Reconciler},
};

/// Counts what the objects of a namespace use.
pub trait QuotaUsage: Send + Sync + 'static {
    /// The usage of every resource that the quota limits and the server can measure, with what admission
    /// has charged for objects that are not stored yet. The quota has to be current.
    fn used<'a>(&'a self, quota: &'a Value) -> BoxFuture<'a, Result<MeasuredUsage, ApiError>>;

    /// The controller has written the quota's status.
    fn wrote(&self, quota: &Value);
}

pub struct MeasuredUsage {
    pub used: Map,
    /// Set if charges are in it whose objects may never be stored.
    pub count_again: Option<Duration>,
}

pub struct ResourceQuotaController {
    api: Arc<dyn ApiClient>,
    usage: Arc<dyn QuotaUsage>,
    recounts: Recounts,
}

/// Quotas, by uid, whose limits were published lately, and when they are counted once more: a write that was
/// admitted before that charged nothing, and may be stored after the first count.
#[derive(Default)]
struct Recounts(Mutex<HashMap<Str, Instant>>);

/// From admission to the store, for a write that no quota was charged for.
const UNCHARGED_WRITE_MAX: Duration = Duration::from_secs(10);

impl Recounts {
    /// The limits of a quota are in its status from now on, so that admission charges it.
    fn published(&self, uid: &str) {
        let now = Instant::now();
        let mut due = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        due.retain(|_, due| now < *due);
        due.insert(uid.into(), now + UNCHARGED_WRITE_MAX);
    }

    fn due_in(&self, uid: &str) -> Option<Duration> {
        let mut due = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = due.get(uid)?.checked_duration_since(Instant::now());
        if left.is_none() {
            due.remove(uid);
        }
        left
    }
}

/// Compat: kube-controller-manager's `--resource-quota-sync-period`. Finds usage that was charged for
/// writes that then failed.
const RESYNC: Duration = Duration::from_mins(5);

impl ResourceQuotaController {
    pub const NAME: &str = "resourcequota-controller";

    pub fn new(api: Arc<dyn ApiClient>, usage: Arc<dyn QuotaUsage>) -> Self {
        Self { api, usage, recounts: Recounts::default() }
    }

    /// Runs until the server stops. `events` are of quotas, and of objects that were deleted or use less
    /// than before.
    pub async fn run(self, events: impl Informer) {
        workqueue::run(self, events).await;
    }

    async fn sync_namespace(&self, namespace: &str) -> Result<ReconcileResult, ApiError> {
        let quotas = ResourceRef::cluster("", "v1", "resourcequotas").in_namespace(namespace);
        let quotas = self.api.list(&quotas).await?;
        if quotas.is_empty() {
            return Ok(ReconcileResult::Done);
        }
        let mut wait = RESYNC;
        for quota in quotas {
            wait = wait.min(self.sync(quota).await?);
        }
        Ok(ReconcileResult::RequeueAfter(wait))
    }

    /// Returns when to count again.
    async fn sync(&self, mut quota: Value) -> Result<Duration, ApiError> {
        let hard = quota.at(&["spec", "hard"]).cloned().unwrap_or_else(Value::object);
        let uid = Str::from(quota.str_at(&["metadata", "uid"]));
        // Before it is counted, so that a count after the time is the last one.
        let recount = self.recounts.due_in(&uid);
        let MeasuredUsage { used: measured, count_again } = self.usage.used(&quota).await?;
        let wait = [count_again, recount].into_iter().flatten().min().unwrap_or(RESYNC);
        // What cannot be measured keeps the usage that it had.
        let mut used = Map::default();
        for (name, _) in hard.as_object().into_iter().flat_map(Map::iter) {
            let known = || quota.at(&["status", "used", name]).cloned();
            if let Some(amount) = measured.get(name).cloned().or_else(known) {
                used.insert(name.clone(), amount);
            }
        }
        let used = Value::from(used);
        let is_same = |field, value: &Value| {
            quota.at(&["status", field]).is_some_and(|known| equal_amounts(known, value))
        };
        let publishes = !is_same("hard", &hard);
        if !publishes && is_same("used", &used) {
            return Ok(wait);
        }
        quota.set_at(&["status", "hard"], hard);
        quota.set_at(&["status", "used"], used);
        let of = |field| quota.str_at(&["metadata", field]);
        let target = ResourceRef {
            subresource: "status",
            ..ResourceRef::cluster("", "v1", "resourcequotas")
                .in_namespace(of("namespace"))
                .named(of("name"))
        };
        // A conflict: admission has charged for another object meanwhile, and all is counted again.
        let written = self.api.update(&target, &quota).await?;
        self.usage.wrote(&written);
        if publishes {
            self.recounts.published(&uid);
            return Ok(wait.min(UNCHARGED_WRITE_MAX));
        }
        Ok(wait)
    }
}

/// Equal as amounts: `1` and `1000m` are.
fn equal_amounts(a: &Value, b: &Value) -> bool {
    let amounts = |value: &Value| -> Option<Vec<(String, Quantity)>> {
        let map = value.as_object()?.iter();
        map.map(|(name, amount)| Some((name.to_string(), Quantity::from_value(amount).ok()?)))
            .collect()
    };
    amounts(a).is_some_and(|a| Some(a) == amounts(b))
}

impl Reconciler for ResourceQuotaController {
    const QUEUE: &'static str = "resourcequota_primary";

    fn keys_for(&self, event: &ObjectEvent) -> Vec<Key> {
        let is_gone = event.deleted && event.resource.gvr.resource == "resourcequotas";
        if event.namespace.is_empty() || is_gone {
            return Vec::new();
        }
        vec![(event.namespace.clone(), "".into())]
    }

    fn reconcile<'a>(
        &'a self,
        (namespace, _): &'a Key,
    ) -> BoxFuture<'a, Result<ReconcileResult, ApiError>> {
        Box::pin(self.sync_namespace(namespace))
    }
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;
    use crate::testing::FakeClient;

    struct FakeUsage(Mutex<Value>);

    impl QuotaUsage for FakeUsage {
        fn used<'a>(&'a self, _: &'a Value) -> BoxFuture<'a, Result<MeasuredUsage, ApiError>> {
            let used = self.0.lock().unwrap().as_object().cloned().unwrap_or_default();
            Box::pin(std::future::ready(Ok(MeasuredUsage { used, count_again: None })))
        }

        fn wrote(&self, _: &Value) {}
    }

    fn quota(status: Value) -> Value {
        value!({"metadata": {"name": "q", "namespace": "n", "uid": "u"},
            "spec": {"hard": {"pods": "5"}}, "status": (status)})
    }

    /// Status before, measured usage, status after, when it is counted again.
    #[tokio::test]
    async fn the_status_follows_spec_and_usage() {
        let cases = [
            (
                value!({}),
                value!({"pods": "2"}),
                value!({"hard": {"pods": "5"}, "used": {"pods": "2"}}),
                UNCHARGED_WRITE_MAX,
            ),
            (
                value!({"hard": {"pods": "4"}, "used": {"pods": "3", "old": "1"}}),
                value!({"pods": "2"}),
                value!({"hard": {"pods": "5"}, "used": {"pods": "2"}}),
                UNCHARGED_WRITE_MAX,
            ),
            // What is not measured stays.
            (
                value!({"hard": {"pods": "5"}, "used": {"pods": "3"}}),
                value!({}),
                value!({"hard": {"pods": "5"}, "used": {"pods": "3"}}),
                RESYNC,
            ),
        ];
        for (status, measured, expected, wait) in cases {
            let api = FakeClient::new([("resourcequotas", quota(status))]);
            let usage = Arc::new(FakeUsage(measured.into()));
            let controller = ResourceQuotaController::new(api.clone(), usage);
            let result = controller.reconcile(&("n".into(), "".into())).await.unwrap();
            assert_eq!(result, ReconcileResult::RequeueAfter(wait));
            assert_eq!(api.object("resourcequotas", "n", "q").get("status"), Some(&expected));
        }
    }

    /// An object that was admitted before the quota existed and stored after it was counted.
    #[tokio::test(start_paused = true)]
    async fn a_new_quota_is_counted_again_when_earlier_writes_are_stored() {
        let api = FakeClient::new([("resourcequotas", quota(value!({})))]);
        let usage = Arc::new(FakeUsage(value!({"pods": "0"}).into()));
        let controller = ResourceQuotaController::new(api.clone(), usage.clone());
        let key = ("n".into(), "".into());
        controller.reconcile(&key).await.unwrap();
        *usage.0.lock().unwrap() = value!({"pods": "1"});
        // The write of the status is an event: it must not put the second count off.
        tokio::time::advance(Duration::from_secs(1)).await;
        let again = controller.reconcile(&key).await.unwrap();
        assert_eq!(again, ReconcileResult::RequeueAfter(Duration::from_secs(9)));
        tokio::time::advance(Duration::from_secs(10)).await;
        let again = controller.reconcile(&key).await.unwrap();
        assert_eq!(again, ReconcileResult::RequeueAfter(RESYNC));
        let used = api.object("resourcequotas", "n", "q");
        assert_eq!(used.str_at(&["status", "used", "pods"]), "1");
        assert!(controller.recounts.0.lock().unwrap().is_empty());
    }
}
