//! Service `default/kubernetes` and its endpoints, by which pods reach the apiserver; recreated when a
//! client deletes them.

use std::{net::IpAddr, sync::Arc, time::Duration};

use meta::{ApiError, Value, value};

use crate::{Api, Informer, InformerEvent, Pinned, Target, bootstrap::reconcile_fields};

pub struct KubernetesService {
    pub api: Arc<dyn Api>,
    /// The first address of `--service-cluster-ip-range`.
    pub address: IpAddr,
    /// `--advertise-address`
    pub advertised: IpAddr,
    pub secure_port: u16,
    pub endpoints: EndpointReconciler,
}

/// `--endpoint-reconciler-type`: who writes the endpoints of the service.
#[derive(Clone)]
pub enum EndpointReconciler {
    /// `none`: the apiserver does not write them.
    None,
    /// `master-count` with a count of one: the embedded store has a single apiserver.
    MasterCount,
    /// `lease`: each apiserver renews a lease in the store, and the endpoints are all leases.
    Lease(Arc<dyn MasterLeases>),
}

/// The leases that apiservers keep in the store under `masterleases/`.
pub trait MasterLeases: Send + Sync + 'static {
    fn renew(&self, address: IpAddr) -> Pinned<'_, Result<(), ApiError>>;
    fn addresses(&self) -> Pinned<'_, Result<Vec<IpAddr>, ApiError>>;
    fn remove(&self, address: IpAddr) -> Pinned<'_, Result<(), ApiError>>;
}

/// Delay before a failed reconciliation is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// A lease's TTL is 1.5 times this.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(10);

impl KubernetesService {
    /// Reconciles the service and adds this apiserver to its endpoints.
    pub async fn sync(&self) -> Result<(), ApiError> {
        let api = &*self.api;
        let services = Target::cluster("", "v1", "services").in_namespace("default");
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
            EndpointReconciler::MasterCount => Ok(Some(vec![self.advertised])),
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
        let endpoints = Target::cluster("", "v1", "endpoints").in_namespace("default");
        let slices = Target::cluster("discovery.k8s.io", "v1", "endpointslices");
        let slices = slices.in_namespace("default");
        let (one, many) = (self.endpoints(servers), self.endpoint_slice(servers));
        let (one, many) = tokio::join!(
            reconcile_fields(&*self.api, &endpoints, &one, &[&["subsets"]]),
            reconcile_fields(&*self.api, &slices, &many, &[&["endpoints"], &["ports"]]),
        );
        one.and(many)
    }

    /// Runs until the server stops. `events` are events of the service and its endpoints.
    pub async fn run(&self, mut events: impl Informer) {
        let renews = matches!(self.endpoints, EndpointReconciler::Lease(_));
        loop {
            let renewal = async {
                if renews {
                    tokio::time::sleep(RECONCILE_INTERVAL).await;
                } else {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                change = events.next() => match change {
                    None => return,
                    Some(InformerEvent::Object(seen)) if seen.deleted => {}
                    Some(_) => continue,
                },
                () = renewal => {}
            }
            while let Err(error) = self.sync().await {
                tracing::warn!("cannot reconcile service kubernetes yet: {error}");
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }

    /// Removes this apiserver from the endpoints before it shuts down.
    pub async fn stop(&self) -> Result<(), ApiError> {
        let EndpointReconciler::Lease(leases) = &self.endpoints else { return Ok(()) };
        leases.remove(self.advertised).await?;
        let mut others = leases.addresses().await?;
        others.retain(|address| *address != self.advertised);
        // The last apiserver keeps its address in the endpoints: an empty list would be worse.
        if others.is_empty() { Ok(()) } else { self.write_endpoints(&others).await }
    }

    fn service(&self) -> Value {
        value!({
            "kind": "Service",
            "apiVersion": "v1",
            "metadata": {
                "name": (NAME),
                "namespace": "default",
                "labels": {"provider": "kubernetes", "component": "apiserver"},
            },
            "spec": {
                "type": "ClusterIP",
                "clusterIP": (self.address.to_string()),
                "ipFamilyPolicy": "SingleStack",
                "sessionAffinity": "None",
                "ports": [{
                    "name": "https",
                    "protocol": "TCP",
                    "port": 443i64,
                    "targetPort": (i64::from(self.secure_port)),
                }],
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
