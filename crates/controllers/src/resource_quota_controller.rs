//! kube-controller-manager's resourcequota-controller: keeps the status of ResourceQuotas. Admission adds
//! what new objects use; this controller takes back what deleted objects used, and counts anew when a
//! quota changes.

use std::{sync::Arc, time::Duration};

use meta::{ApiError, Map, Value, quantity::Quantity};

use crate::{
    Api, Informer, ObjectEvent, Pinned, Target,
    workqueue::{self, Key, ReconcileResult, Reconciler},
};

/// Counts what the objects of a namespace use.
pub trait QuotaUsage: Send + Sync + 'static {
    /// The usage of every resource that the quota limits and the server can measure, with what admission
    /// has charged for objects that are not stored yet. The quota has to be current.
    fn used<'a>(&'a self, quota: &'a Value) -> Pinned<'a, Result<MeasuredUsage, ApiError>>;

    /// The controller has written the quota's status.
    fn wrote(&self, quota: &Value);
}

pub struct MeasuredUsage {
    pub used: Map,
    /// Set if charges are in it whose objects may never be stored.
    pub count_again: Option<Duration>,
}

pub struct ResourceQuotaController {
    pub api: Arc<dyn Api>,
    pub usage: Arc<dyn QuotaUsage>,
}

/// Compat: kube-controller-manager's `--resource-quota-sync-period`. Finds usage that was charged for
/// writes that then failed.
const RESYNC: Duration = Duration::from_mins(5);

impl ResourceQuotaController {
    pub const NAME: &str = "resourcequota-controller";

    /// Runs until the server stops. `events` are of quotas, and of objects that were deleted or use less
    /// than before.
    pub async fn run(self, events: impl Informer) {
        workqueue::run(self, events).await;
    }

    async fn sync_namespace(&self, namespace: &str) -> Result<ReconcileResult, ApiError> {
        let quotas = Target::cluster("", "v1", "resourcequotas").in_namespace(namespace);
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
        let MeasuredUsage { used: measured, count_again } = self.usage.used(&quota).await?;
        let wait = count_again.unwrap_or(RESYNC);
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
        if is_same("hard", &hard) && is_same("used", &used) {
            return Ok(wait);
        }
        quota.set_at(&["status", "hard"], hard);
        quota.set_at(&["status", "used"], used);
        let of = |field| quota.str_at(&["metadata", field]);
        let target = Target {
            subresource: "status",
            ..Target::cluster("", "v1", "resourcequotas")
                .in_namespace(of("namespace"))
                .named(of("name"))
        };
        // A conflict: admission has charged for another object meanwhile, and all is counted again.
        let written = self.api.update(&target, &quota).await?;
        self.usage.wrote(&written);
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
    ) -> Pinned<'a, Result<ReconcileResult, ApiError>> {
        Box::pin(self.sync_namespace(namespace))
    }
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;
    use crate::testing::FakeApi;

    struct Fixed(Value);

    impl QuotaUsage for Fixed {
        fn used<'a>(&'a self, _: &'a Value) -> Pinned<'a, Result<MeasuredUsage, ApiError>> {
            let used = self.0.as_object().cloned().unwrap_or_default();
            Box::pin(std::future::ready(Ok(MeasuredUsage { used, count_again: None })))
        }

        fn wrote(&self, _: &Value) {}
    }

    /// Status before, measured usage, status after.
    #[tokio::test]
    async fn the_status_follows_spec_and_usage() {
        let cases = [
            (
                value!({}),
                value!({"pods": "2"}),
                value!({"hard": {"pods": "5"}, "used": {"pods": "2"}}),
            ),
            (
                value!({"hard": {"pods": "4"}, "used": {"pods": "3", "old": "1"}}),
                value!({"pods": "2"}),
                value!({"hard": {"pods": "5"}, "used": {"pods": "2"}}),
            ),
            // What is not measured stays.
            (
                value!({"hard": {"pods": "5"}, "used": {"pods": "3"}}),
                value!({}),
                value!({"hard": {"pods": "5"}, "used": {"pods": "3"}}),
            ),
        ];
        for (status, measured, expected) in cases {
            let quota = value!({"metadata": {"name": "q", "namespace": "n"},
                "spec": {"hard": {"pods": "5"}}, "status": (status)});
            let api = FakeApi::new([("resourcequotas", quota)]);
            let controller =
                ResourceQuotaController { api: api.clone(), usage: Arc::new(Fixed(measured)) };
            let result = controller.reconcile(&("n".into(), "".into())).await.unwrap();
            assert_eq!(result, ReconcileResult::RequeueAfter(RESYNC));
            assert_eq!(api.object("resourcequotas", "n", "q").get("status"), Some(&expected));
        }
    }
}
