//! Service `default/kubernetes`: how pods find the server. Whoever deletes it gets it back.

use std::{net::IpAddr, sync::Arc, time::Duration};

use meta::{ApiError, Value, value};

use crate::{Api, Change, Changes, Target, bootstrap::reconcile};

pub struct KubernetesService {
    pub api: Arc<dyn Api>,
    /// The first address of the service range.
    pub address: IpAddr,
    /// Where others reach this server.
    pub advertised: IpAddr,
    pub secure_port: u16,
}

/// When something failed, it is tried again this much later.
const RETRY: Duration = Duration::from_secs(1);

impl KubernetesService {
    /// Makes the service, and this server its endpoint.
    pub async fn keep(&self) -> Result<(), ApiError> {
        let api = &*self.api;
        let services = Target::cluster("", "v1", "services").in_namespace("default");
        let fields: [&[&str]; 2] = [&["spec", "ports"], &["spec", "type"]];
        reconcile(api, &services, &self.service(), &fields).await?;
        // Endpoints that everybody would take for himself are worse than none.
        if self.advertised.is_loopback() || self.advertised.is_unspecified() {
            return Ok(());
        }
        let endpoints = Target::cluster("", "v1", "endpoints").in_namespace("default");
        let slices = Target::cluster("discovery.k8s.io", "v1", "endpointslices");
        let slices = slices.in_namespace("default");
        let (one, many) = (self.endpoints(), self.endpoint_slice());
        let (one, many) = tokio::join!(
            reconcile(api, &endpoints, &one, &[&["subsets"]]),
            reconcile(api, &slices, &many, &[&["endpoints"], &["ports"]]),
        );
        one.and(many)
    }

    /// Works until the server stops. `changes` are of the service and its endpoints.
    pub async fn run(self, mut changes: impl Changes) {
        while let Some(change) = changes.next().await {
            if !matches!(change, Change::Seen(seen) if seen.gone) {
                continue;
            }
            while let Err(error) = self.keep().await {
                tracing::warn!("cannot make service kubernetes yet: {error}");
                tokio::time::sleep(RETRY).await;
            }
        }
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

    fn endpoints(&self) -> Value {
        value!({
            "kind": "Endpoints",
            "apiVersion": "v1",
            "metadata": {
                "name": (NAME),
                "namespace": "default",
                "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
            },
            "subsets": [{
                "addresses": [{"ip": (self.advertised.to_string())}],
                "ports": [(self.port())],
            }],
        })
    }

    fn endpoint_slice(&self) -> Value {
        value!({
            "kind": "EndpointSlice",
            "apiVersion": "discovery.k8s.io/v1",
            "metadata": {
                "name": (NAME),
                "namespace": "default",
                "labels": {"kubernetes.io/service-name": (NAME)},
            },
            "addressType": (if self.advertised.is_ipv4() { "IPv4" } else { "IPv6" }),
            "endpoints": [{
                "addresses": [(self.advertised.to_string())],
                "conditions": {"ready": true},
            }],
            "ports": [(self.port())],
        })
    }

    fn port(&self) -> Value {
        value!({"name": "https", "port": (i64::from(self.secure_port)), "protocol": "TCP"})
    }
}

const NAME: &str = "kubernetes";
