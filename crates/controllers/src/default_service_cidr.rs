//! ServiceCIDR `kubernetes` with the ranges of `--service-cluster-ip-range`, recreated when a client
//! deletes it.

use std::{sync::Arc, time::Duration};

use meta::{ApiError, Value, value};

use crate::{ApiClient, Informer, ResourceRef, get_or_create};

pub struct DefaultServiceCidr {
    pub api: Arc<dyn ApiClient>,
    /// The first range decides the default IP family of services.
    pub ranges: Vec<String>,
}

/// Compat: field manager of the condition.
const MANAGER: &str = "kubernetes-service-cidr-controller";
/// Delay before a failed reconciliation is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);

impl DefaultServiceCidr {
    pub const NAME: &str = "kubernetes";

    pub fn target() -> ResourceRef {
        ResourceRef::cluster("networking.k8s.io", "v1", "servicecidrs")
    }

    /// Creates the object and sets the condition `Ready`, unless it has conditions already.
    pub async fn sync(&self) -> Result<(), ApiError> {
        let mut found = get_or_create(&*self.api, &Self::target(), &self.object()).await?;
        let target = Self::target().named(Self::NAME);
        if let ([one], [first, _]) = (found.items_at(CIDRS), &self.ranges[..])
            && one.as_str() == Some(first)
        {
            found.set_at(CIDRS, self.ranges.clone());
            found = self.api.update(&target, &found).await?;
        }
        // Another apiserver with other ranges sets the condition itself.
        let is_ours = found.at(CIDRS) == self.object().at(CIDRS);
        let is_deleting = !found.str_at(&["metadata", "deletionTimestamp"]).is_empty();
        let has_conditions = !found.items_at(&["status", "conditions"]).is_empty();
        if !is_ours || is_deleting || has_conditions {
            return Ok(());
        }
        let status = ResourceRef { subresource: "status", ..target };
        self.api.apply(&status, &ready(), MANAGER).await.map(drop)
    }

    /// Runs until the server stops. `events` are deletions of this object.
    pub async fn run(self, mut events: impl Informer) {
        loop {
            while let Err(error) = self.sync().await {
                tracing::warn!("cannot make the default ServiceCIDR yet: {error}");
                tokio::time::sleep(RETRY_DELAY).await;
            }
            if events.next().await.is_none() {
                return;
            }
        }
    }

    fn object(&self) -> Value {
        value!({
            "kind": "ServiceCIDR",
            "apiVersion": "networking.k8s.io/v1",
            "metadata": {"name": (Self::NAME)},
            "spec": {"cidrs": (self.ranges.clone())},
        })
    }
}

const CIDRS: &[&str] = &["spec", "cidrs"];

fn ready() -> Value {
    value!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": (DefaultServiceCidr::NAME)},
        "status": {"conditions": [{
            "type": "Ready",
            "status": "True",
            "message": "Kubernetes default Service CIDR is ready",
            "lastTransitionTime": (meta::time::now()),
        }]},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeClient;

    async fn synced(object: Value, ranges: &[&str]) -> Arc<FakeClient> {
        let api = FakeClient::new([("servicecidrs", object)]);
        let ranges = ranges.iter().map(ToString::to_string).collect();
        DefaultServiceCidr { api: api.clone(), ranges }.sync().await.unwrap();
        api
    }

    #[tokio::test]
    async fn ready_is_set_for_own_ranges_that_are_not_being_deleted() {
        let own = value!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.0.0.0/24"]}});
        let mut deleting = own.clone();
        deleting.set_at(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
        let mut has_conditions = own.clone();
        has_conditions
            .set_at(&["status"], value!({"conditions": [{"type": "Ready", "status": "False"}]}));
        let other =
            value!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.9.0.0/24"]}});
        let cases = [(own, 1), (deleting, 0), (has_conditions, 0), (other, 0)];
        for (object, expected) in cases {
            let api = synced(object.clone(), &["10.0.0.0/24"]).await;
            assert_eq!(api.applied().len(), expected, "{object:?}");
        }
    }

    #[tokio::test]
    async fn a_second_family_is_added() {
        let own = value!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.0.0.0/24"]}});
        let api = synced(own, &["10.0.0.0/24", "fd00::/112"]).await;
        let cidrs = api.object("servicecidrs", "", "kubernetes");
        assert_eq!(cidrs.at(CIDRS), Some(&value!(["10.0.0.0/24", "fd00::/112"])));
    }
}
