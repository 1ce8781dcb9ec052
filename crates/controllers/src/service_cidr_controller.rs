//! kube-controller-manager's service-cidr-controller: sets the condition `Ready` of ServiceCIDRs, and
//! keeps a deleted one while it has the only range of an allocated IPAddress.

use std::{net::IpAddr, sync::Arc, time::Duration};

use meta::{ApiError, Value, time::Time, value};

use crate::{
    ApiClient, BoxFuture, Informer, ObjectEvent, ResourceRef,
    finalizers::{has_finalizer, with_finalizer, without_finalizer},
    workqueue::{self, Key, ReconcileResult, Reconciler},
};

pub struct ServiceCidrController {
    pub api: Arc<dyn ApiClient>,
}

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// Compat: field manager of the condition.
const MANAGER: &str = "service-cidr-controller";
/// A deleted ServiceCIDR stays at least this long, so that every apiserver has seen the deletion and
/// none allocates from the range.
const DELETION_GRACE_PERIOD: Duration = Duration::from_secs(10);

fn ranges() -> ResourceRef {
    ResourceRef::cluster("networking.k8s.io", "v1", "servicecidrs")
}

impl ServiceCidrController {
    /// Runs until the server stops. `events` are events of ServiceCIDRs and IPAddresses.
    pub async fn run(self, events: impl Informer) {
        workqueue::run(self, events).await;
    }

    async fn sync_all(&self) -> Result<ReconcileResult, ApiError> {
        let all = self.api.list(&ranges()).await?;
        let mut next = ReconcileResult::Done;
        for cidr in &all {
            match self.sync(cidr, &all).await {
                // Deleted, or changed, which leads to another event.
                Ok(ReconcileResult::Done)
                | Err(ApiError::NotFound { .. } | ApiError::Conflict { .. }) => {}
                Ok(later) => next = later,
                Err(error) => return Err(error),
            }
        }
        Ok(next)
    }

    async fn sync(&self, cidr: &Value, all: &[Value]) -> Result<ReconcileResult, ApiError> {
        let target = ranges().named(cidr.str_at(&["metadata", "name"]));
        let deleted = cidr.str_at(&["metadata", "deletionTimestamp"]);
        if deleted.is_empty() {
            if let Some(cidr) = with_finalizer(cidr.clone(), FINALIZER) {
                self.api.update(&target, &cidr).await?;
            }
            self.set_ready(&target, cidr, true, "", "Kubernetes Service CIDR is ready").await?;
            return Ok(ReconcileResult::Done);
        }
        if !has_finalizer(cidr, FINALIZER) {
            return Ok(ReconcileResult::Done);
        }
        let addresses = ResourceRef::cluster("networking.k8s.io", "v1", "ipaddresses");
        if !can_delete(cidr, all, &self.api.list(&addresses).await?) {
            let why = "There are still IPAddresses referencing the ServiceCIDR, please remove them \
                       or create a new ServiceCIDR";
            self.set_ready(&target, cidr, false, "Terminating", why).await?;
            return Ok(ReconcileResult::Done);
        }
        let since = Time::parse(deleted)
            .map_or(0, |since| Time::now().unix_seconds().saturating_sub(since.unix_seconds()));
        let left = DELETION_GRACE_PERIOD.saturating_sub(Duration::from_secs(since.unsigned_abs()));
        if !left.is_zero() {
            return Ok(ReconcileResult::RequeueAfter(left));
        }
        if let Some(cidr) = without_finalizer(cidr.clone(), FINALIZER) {
            self.api.update(&target, &cidr).await?;
        }
        Ok(ReconcileResult::Done)
    }

    /// Writes the condition `Ready` if it differs.
    async fn set_ready(
        &self,
        target: &ResourceRef,
        cidr: &Value,
        ready: bool,
        reason: &str,
        message: &str,
    ) -> Result<(), ApiError> {
        let status = if ready { "True" } else { "False" };
        let mut conditions = cidr.items_at(&["status", "conditions"]).iter();
        let known = conditions.any(|known| {
            let says = |field, text| known.str_at(&[field]) == text;
            // `Ready` with another message was set by the apiserver's default ServiceCIDR controller.
            let same = ready || (says("reason", reason) && says("message", message));
            says("type", "Ready") && says("status", status) && same
        });
        if known {
            return Ok(());
        }
        let applied = value!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "ServiceCIDR",
            "metadata": {"name": (target.name.as_str())},
            "status": {"conditions": [{
                "type": "Ready",
                "status": (status),
                "reason": (reason),
                "message": (message),
                "lastTransitionTime": (meta::time::now()),
            }]},
        });
        let status = ResourceRef { subresource: "status", ..target.clone() };
        self.api.apply(&status, &applied, MANAGER).await.map(drop)
    }
}

impl Reconciler for ServiceCidrController {
    const QUEUE: &'static str = "servicecidrs";

    fn keys_for(&self, _event: &ObjectEvent) -> Vec<Key> {
        // There are few ServiceCIDRs, and whether one can be deleted depends on all of them.
        vec![("".into(), "".into())]
    }

    fn reconcile<'a>(&'a self, _key: &'a Key) -> BoxFuture<'a, Result<ReconcileResult, ApiError>> {
        Box::pin(self.sync_all())
    }
}

/// Whether every allocated address is in the range of another ServiceCIDR.
fn can_delete(cidr: &Value, all: &[Value], addresses: &[Value]) -> bool {
    let name = cidr.str_at(&["metadata", "name"]);
    let (own, others): (Vec<&Value>, Vec<&Value>) =
        all.iter().partition(|other| other.str_at(&["metadata", "name"]) == name);
    let networks = |cidrs: &[&Value]| -> Vec<Network> {
        let texts = cidrs.iter().flat_map(|cidr| cidr.items_at(&["spec", "cidrs"]));
        texts.filter_map(Value::as_str).filter_map(Network::parse).collect()
    };
    let (own, others) = (networks(&own), networks(&others));
    let label = ["metadata", "labels", "ipaddress.kubernetes.io/managed-by"];
    let managed = addresses.iter().filter(|address| address.str_at(&label) == "ipallocator.k8s.io");
    let ips = managed.filter_map(|address| address.str_at(&["metadata", "name"]).parse().ok());
    let inside = |networks: &[Network], ip: IpAddr| networks.iter().any(|net| net.contains(ip));
    !ips.into_iter().any(|ip| inside(&own, ip) && !inside(&others, ip))
}

struct Network {
    is_ipv4: bool,
    first: u128,
    last: u128,
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let (address, prefix): (IpAddr, u32) = (address.parse().ok()?, prefix.parse().ok()?);
        let bits: u32 = if address.is_ipv4() { 32 } else { 128 };
        let host = u128::MAX.checked_shr(128 - bits.checked_sub(prefix)?).unwrap_or(0);
        let first = number(address) & !host;
        Some(Self { is_ipv4: address.is_ipv4(), first, last: first | host })
    }

    fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.is_ipv4 && (self.first..=self.last).contains(&number(address))
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeClient;

    fn cidr(name: &str, range: &str) -> Value {
        value!({"metadata": {"name": (name)}, "spec": {"cidrs": [(range)]}})
    }

    fn address(ip: &str) -> Value {
        value!({"metadata": {"name": (ip),
            "labels": {"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}}})
    }

    #[test]
    fn a_range_cannot_be_deleted_while_it_is_the_only_one_of_an_address() {
        let own = cidr("own", "10.1.0.0/24");
        let cases = [
            ("10.9.0.0/24", "10.1.0.5", false),
            ("10.9.0.0/24", "10.2.0.5", true),
            ("10.9.0.0/24", "fd00::1", true),
            ("10.1.0.0/28", "10.1.0.5", true),
            ("10.1.0.0/28", "10.1.0.55", false),
            ("10.0.0.0/8", "10.1.0.55", true),
            ("0.0.0.0/0", "10.1.0.55", true),
        ];
        for (other, ip, expected) in cases {
            let all = [own.clone(), cidr("other", other)];
            assert_eq!(can_delete(&own, &all, &[address(ip)]), expected, "{other} {ip}");
        }
        let mut foreign = address("10.1.0.5");
        foreign.set_at(&["metadata", "labels"], Value::object());
        assert!(can_delete(&own, std::slice::from_ref(&own), &[foreign]));
    }

    #[tokio::test]
    async fn a_new_range_is_protected_and_ready_and_a_deleted_one_waits_for_its_addresses() {
        let fake = FakeClient::new([("servicecidrs", cidr("own", "10.1.0.0/24"))]);
        let controller = ServiceCidrController { api: fake.clone() };
        let key = ("".into(), "".into());
        controller.reconcile(&key).await.unwrap();
        let found = fake.object("servicecidrs", "", "own");
        assert!(has_finalizer(&found, FINALIZER));
        let applied = fake.applied();
        assert_eq!(applied.len(), 1);
        assert_eq!(applied[0].items_at(&["status", "conditions"])[0].str_at(&["status"]), "True");

        fake.insert("ipaddresses", address("10.1.0.5"));
        let mut deleting = found;
        deleting.set_at(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
        fake.insert("servicecidrs", deleting.clone());
        controller.reconcile(&key).await.unwrap();
        let applied = fake.applied();
        assert_eq!(
            applied[1].items_at(&["status", "conditions"])[0].str_at(&["reason"]),
            "Terminating"
        );
        assert!(has_finalizer(&fake.object("servicecidrs", "", "own"), FINALIZER));

        fake.remove("ipaddresses", "", "10.1.0.5");
        controller.reconcile(&key).await.unwrap();
        assert!(!has_finalizer(&fake.object("servicecidrs", "", "own"), FINALIZER));

        // Within the grace period.
        deleting.set_at(&["metadata", "deletionTimestamp"], meta::time::now());
        fake.insert("servicecidrs", deleting);
        assert!(matches!(controller.reconcile(&key).await, Ok(ReconcileResult::RequeueAfter(_))));
    }
}
