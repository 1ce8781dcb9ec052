//! kube-apiserver's identity lease: every apiserver renews its own Lease in kube-system and deletes
//! the expired leases of others.

use std::{sync::Arc, time::Duration};

use meta::{ApiError, Value, time::Time, value};

use crate::{ApiClient, ResourceRef};

pub struct IdentityLease {
    api: Arc<dyn ApiClient>,
    /// `apiserver-<hash>`
    identity: String,
    hostname: String,
    /// `host:port` for other API servers.
    peer_address: Option<String>,
    /// Differs after each start.
    holder: String,
    stopped: tokio::sync::Mutex<bool>,
}

/// A lease that was not renewed for this long has expired.
const LEASE_SECONDS: i64 = 3600;
const RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// Expired leases are deleted after this many renewals: once an hour.
const RENEWALS_PER_GC: u32 = 360;
const PEER_ADDRESS: &str = "kubernetes.io/peer-advertise-address";
const LABEL: &str = "apiserver.kubernetes.io/identity";

impl IdentityLease {
    pub fn new(
        api: Arc<dyn ApiClient>,
        identity: String,
        hostname: String,
        peer_address: Option<String>,
    ) -> Self {
        let holder = format!("{identity}_{}", uuid::Uuid::new_v4());
        let stopped = tokio::sync::Mutex::new(false);
        Self { api, identity, hostname, peer_address, holder, stopped }
    }

    fn target() -> ResourceRef {
        ResourceRef::cluster("coordination.k8s.io", "v1", "leases").in_namespace("kube-system")
    }

    /// Deletes what a former process of this server has left, and creates the lease.
    pub async fn take(&self) -> Result<(), ApiError> {
        self.delete().await?;
        self.renew().await
    }

    /// Deletes the lease; it is not renewed any more.
    pub async fn stop(&self) -> Result<(), ApiError> {
        let mut stopped = self.stopped.lock().await;
        *stopped = true;
        self.delete().await
    }

    async fn delete(&self) -> Result<(), ApiError> {
        let named = Self::target().named(&self.identity);
        match self.api.delete(&named, &Value::object()).await {
            Ok(()) | Err(ApiError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Creates or renews this server's lease, unless it was stopped.
    pub async fn renew(&self) -> Result<(), ApiError> {
        // Held to the end: a renewal that is under way must not come after the deletion.
        let stopped = self.stopped.lock().await;
        if *stopped {
            return Ok(());
        }
        let named = Self::target().named(&self.identity);
        let now = meta::time::now_micro();
        let mut lease = match self.api.get(&named).await {
            Ok(lease) => lease,
            Err(ApiError::NotFound { .. }) => {
                return self.api.create(&Self::target(), &self.lease(&now)).await.map(drop);
            }
            Err(error) => return Err(error),
        };
        lease.set_at(&["spec", "renewTime"], now);
        lease.set_at(&["spec", "holderIdentity"], self.holder.as_str());
        lease.set_at(&["spec", "leaseDurationSeconds"], LEASE_SECONDS);
        self.annotate(&mut lease);
        self.api.update(&named, &lease).await.map(drop)
    }

    /// Compat: for people; peers look it up in the store.
    fn annotate(&self, lease: &mut Value) {
        if let Some(address) = &self.peer_address {
            lease.set_at(&["metadata", "annotations", PEER_ADDRESS], address.as_str());
        }
    }

    fn lease(&self, now: &str) -> Value {
        let mut lease = value!({
            "kind": "Lease",
            "apiVersion": "coordination.k8s.io/v1",
            "metadata": {
                "name": (self.identity.as_str()),
                "namespace": "kube-system",
                "labels": {
                    "apiserver.kubernetes.io/identity": "kube-apiserver",
                    "kubernetes.io/hostname": (self.hostname.as_str()),
                },
            },
            "spec": {
                "holderIdentity": (self.holder.as_str()),
                "leaseDurationSeconds": (LEASE_SECONDS),
                "renewTime": (now),
            },
        });
        self.annotate(&mut lease);
        lease
    }

    /// Renews until the server stops.
    pub async fn run(&self) {
        let mut renewals: u32 = 0;
        loop {
            if renewals.is_multiple_of(RENEWALS_PER_GC) {
                self.delete_expired().await;
            }
            tokio::time::sleep(RENEW_INTERVAL).await;
            renewals = renewals.wrapping_add(1);
            if let Err(error) = self.renew().await {
                tracing::warn!(lease = self.identity, "cannot renew the lease yet: {error}");
            }
        }
    }

    async fn delete_expired(&self) {
        let Ok(leases) = self.api.list(&Self::target()).await else { return };
        let labelled =
            |lease: &&Value| lease.str_at(&["metadata", "labels", LABEL]) == "kube-apiserver";
        for lease in leases.iter().filter(labelled).filter(|lease| is_expired(lease, Time::now())) {
            let named = Self::target().named(lease.str_at(&["metadata", "name"]));
            let version = lease.str_at(&["metadata", "resourceVersion"]);
            let options = value!({"preconditions": {"resourceVersion": (version)}});
            // A lease that was renewed or deleted meanwhile needs nothing.
            drop(self.api.delete(&named, &options).await);
        }
    }
}

fn is_expired(lease: &Value, now: Time) -> bool {
    let Ok(renewed) = Time::parse(lease.str_at(&["spec", "renewTime"])) else { return true };
    let Some(seconds) = lease.i64_at(&["spec", "leaseDurationSeconds"]) else { return true };
    now.unix_seconds() > renewed.unix_seconds().saturating_add(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_is_not_renewed_expires() {
        let lease = value!({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 60i64}});
        let at = |text| Time::parse(text).unwrap();
        assert!(!is_expired(&lease, at("2026-01-01T00:01:00Z")));
        assert!(is_expired(&lease, at("2026-01-01T00:01:01Z")));
        assert!(is_expired(&value!({}), at("2026-01-01T00:00:00Z")));
    }
}
