//! Service `default/kubernetes` and its endpoints, by which pods reach the apiserver; recreated when a
//! client deletes them.

use std::{net::IpAddr, sync::Arc, time::Duration};

use meta::{ApiError, Value, value};

use crate::{
    ApiClient, BoxFuture, Informer, InformerEvent, ResourceRef, bootstrap::reconcile_fields,
};

pub struct KubernetesService {
    pub api: Arc<dyn ApiClient>,
    /// The first address of `--service-cluster-ip-range`.
    pub address: IpAddr,
    /// `--advertise-address`
    pub advertised: IpAddr,
    pub secure_port: u16,
    /// `--kubernetes-service-node-port`: 0 for a service of type ClusterIP.
    pub node_port: u16,
    /// Whether EndpointSlices are served.
    pub writes_slices: bool,
    pub endpoints: EndpointReconciler,
}

/// `--endpoint-reconciler-type`: who writes the endpoints of the service.
#[derive(Clone)]
pub enum EndpointReconciler {
    /// `none`: the apiserver does not write them.
    None,
    /// This apiserver alone: no other shares its store.
    Single,
    /// `master-count`: each apiserver adds itself, and this many addresses are kept.
    MasterCount(usize),
    /// `lease`: each apiserver renews a lease in the store, and the endpoints are all leases.
    Lease(Arc<dyn MasterLeases>),
}

/// The leases that apiservers keep in the store under `masterleases/`.
pub trait MasterLeases: Send + Sync + 'static {
    fn renew(&self, address: IpAddr) -> BoxFuture<'_, Result<(), ApiError>>;
    fn addresses(&self) -> BoxFuture<'_, Result<Vec<IpAddr>, ApiError>>;
    fn remove(&self, address: IpAddr) -> BoxFuture<'_, Result<(), ApiError>>;
}

/// Delay before a failed reconciliation is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// A lease's TTL is 1.5 times this.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(10);

impl KubernetesService {
    /// Reconciles the service and adds this apiserver to its endpoints.
    pub async fn sync(&self) -> Result<(), ApiError> {
        let api = &*self.api;
        let services = ResourceRef::cluster("", "v1", "services").in_namespace("default");
        let fields: [&[&str]; 2] = [&["spec", "ports"], &["spec", "type"]];
        reconcile_fields(api, &services, &self.service(), &fields).await?;
        match self.apiserver_addresses().await? {
            Some(servers) => self.write_endpoints(&servers).await,
            None => Ok(()),
        }
    }

    /// The addresses of all apiservers, after this one has renewed its lease. None if endpoints are
    /// not to be written.
    async fn apiserver_addresses(&self) -> Result<Option<Vec<IpAddr>>, ApiError> {
        // A loopback endpoint would lead every pod to itself.
        if self.advertised.is_loopback() || self.advertised.is_unspecified() {
            return Ok(None);
        }
        match &self.endpoints {
            EndpointReconciler::None => Ok(None),
            EndpointReconciler::Single => Ok(Some(vec![self.advertised])),
            EndpointReconciler::MasterCount(count) => {
                Ok(Some(with_own(self.known_addresses().await?, self.advertised, *count)))
            }
            EndpointReconciler::Lease(leases) => {
                leases.renew(self.advertised).await?;
                let servers = leases.addresses().await?;
                if servers.is_empty() {
                    // This apiserver's own lease must be among them.
                    return Err(ApiError::internal(
                        "no API server IP addresses were listed in storage, refusing to erase all \
                         endpoints for the kubernetes Service",
                    ));
                }
                Ok(Some(servers))
            }
        }
    }

    async fn write_endpoints(&self, servers: &[IpAddr]) -> Result<(), ApiError> {
        let endpoints = ResourceRef::cluster("", "v1", "endpoints").in_namespace("default");
        let slices = ResourceRef::cluster("discovery.k8s.io", "v1", "endpointslices");
        let slices = slices.in_namespace("default");
        let (one, many) = (self.endpoints(servers), self.endpoint_slice(servers));
        let slices = async {
            if !self.writes_slices {
                return Ok(());
            }
            reconcile_fields(&*self.api, &slices, &many, &[&["endpoints"], &["ports"]]).await
        };
        let endpoints = reconcile_fields(&*self.api, &endpoints, &one, &[&["subsets"]]);
        let (one, many) = tokio::join!(endpoints, slices);
        one.and(many)
    }

    /// The addresses in the endpoints of now.
    async fn known_addresses(&self) -> Result<Vec<IpAddr>, ApiError> {
        let endpoints =
            ResourceRef::cluster("", "v1", "endpoints").in_namespace("default").named(NAME);
        let found = match self.api.get(&endpoints).await {
            Ok(found) => found,
            Err(ApiError::NotFound { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let subsets = found.items_at(&["subsets"]).iter();
        let addresses = subsets.flat_map(|subset| subset.items_at(&["addresses"]).iter());
        Ok(addresses.filter_map(|address| address.str_at(&["ip"]).parse().ok()).collect())
    }

    /// Runs until the server stops. `events` are events of the service and its endpoints.
    pub async fn run(&self, mut events: impl Informer) {
        let renews =
            !matches!(self.endpoints, EndpointReconciler::None | EndpointReconciler::Single);
        loop {
            while let Err(error) = self.sync().await {
                tracing::warn!("cannot reconcile service kubernetes yet: {error}");
                tokio::time::sleep(RETRY_DELAY).await;
            }
            let renewal = async {
                if renews {
                    tokio::time::sleep(RECONCILE_INTERVAL).await;
                } else {
                    std::future::pending::<()>().await;
                }
            };
            tokio::pin!(renewal);
            loop {
                tokio::select! {
                    change = events.next() => match change {
                        None => return,
                        Some(InformerEvent::Object(seen)) if seen.deleted => break,
                        Some(_) => {}
                    },
                    () = &mut renewal => break,
                }
            }
        }
    }

    /// Removes this apiserver from the endpoints before it shuts down.
    pub async fn stop(&self) -> Result<(), ApiError> {
        let mut others = match &self.endpoints {
            EndpointReconciler::None | EndpointReconciler::Single => return Ok(()),
            EndpointReconciler::MasterCount(_) => self.known_addresses().await?,
            EndpointReconciler::Lease(leases) => {
                leases.remove(self.advertised).await?;
                leases.addresses().await?
            }
        };
        others.retain(|address| *address != self.advertised);
        // The last apiserver keeps its address in the endpoints: an empty list would be worse.
        if others.is_empty() { Ok(()) } else { self.write_endpoints(&others).await }
    }

    fn service(&self) -> Value {
        let mut port = value!({
            "name": "https",
            "protocol": "TCP",
            "port": 443i64,
            "targetPort": (i64::from(self.secure_port)),
        });
        if self.node_port > 0 {
            port.set_at(&["nodePort"], i64::from(self.node_port));
        }
        value!({
            "kind": "Service",
            "apiVersion": "v1",
            "metadata": {
                "name": (NAME),
                "namespace": "default",
                "labels": {"provider": "kubernetes", "component": "apiserver"},
            },
            "spec": {
                "type": (if self.node_port > 0 { "NodePort" } else { "ClusterIP" }),
                "clusterIP": (self.address.to_string()),
                "ipFamilyPolicy": "SingleStack",
                "sessionAffinity": "None",
                "ports": [(port)],
            },
        })
    }

    fn endpoints(&self, servers: &[IpAddr]) -> Value {
        let mut servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
        servers.sort();
        let address = |ip: String| value!({"ip": (ip)});
        let addresses: Vec<Value> = servers.into_iter().map(address).collect();
        value!({
            "kind": "Endpoints",
            "apiVersion": "v1",
            "metadata": {
                "name": (NAME),
                "namespace": "default",
                "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
            },
            "subsets": [{
                "addresses": (addresses),
                "ports": [(self.port())],
            }],
        })
    }

    fn endpoint_slice(&self, servers: &[IpAddr]) -> Value {
        let same_family = servers.iter().filter(|ip| ip.is_ipv4() == self.advertised.is_ipv4());
        let mut servers: Vec<String> = same_family.map(ToString::to_string).collect();
        servers.sort();
        let endpoint = |ip: String| value!({"addresses": [(ip)], "conditions": {"ready": true}});
        let endpoints: Vec<Value> = servers.into_iter().map(endpoint).collect();
        value!({
            "kind": "EndpointSlice",
            "apiVersion": "discovery.k8s.io/v1",
            "metadata": {
                "name": (NAME),
                "namespace": "default",
                "labels": {"kubernetes.io/service-name": (NAME)},
            },
            "addressType": (if self.advertised.is_ipv4() { "IPv4" } else { "IPv6" }),
            "endpoints": (endpoints),
            "ports": [(self.port())],
        })
    }

    fn port(&self) -> Value {
        value!({"name": "https", "port": (i64::from(self.secure_port)), "protocol": "TCP"})
    }
}

const NAME: &str = "kubernetes";

/// The own address among the known ones, `count` in all. Compat: those behind it, in the order of their
/// texts, go first, so that servers that replace each other end up with the same list.
fn with_own(known: Vec<IpAddr>, own: IpAddr, count: usize) -> Vec<IpAddr> {
    let mut servers = known;
    if !servers.contains(&own) {
        servers.push(own);
    }
    servers.sort_by_key(ToString::to_string);
    servers.dedup();
    while servers.len() > count.max(1) {
        let at = servers.iter().position(|server| *server == own).unwrap_or_default();
        servers.remove((at + 1) % servers.len());
    }
    servers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_addresses_are_kept_as_there_are_servers() {
        let cases: [(&[&str], usize, &[&str]); 5] = [
            (&[], 1, &["192.0.2.2"]),
            (&["192.0.2.1"], 1, &["192.0.2.2"]),
            (&["192.0.2.1"], 2, &["192.0.2.1", "192.0.2.2"]),
            (&["192.0.2.1", "192.0.2.3"], 2, &["192.0.2.1", "192.0.2.2"]),
            (&["192.0.2.2", "192.0.2.2"], 0, &["192.0.2.2"]),
        ];
        let parse =
            |ips: &[&str]| ips.iter().map(|ip| ip.parse().unwrap()).collect::<Vec<IpAddr>>();
        for (known, count, expected) in cases {
            let own = "192.0.2.2".parse().unwrap();
            assert_eq!(with_own(parse(known), own, count), parse(expected), "{known:?} {count}");
        }
    }
}
