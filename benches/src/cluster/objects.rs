//! The objects of the simulated cluster: their names, their bodies, and how they are made.

use std::time::Duration;

use anyhow::{Result, anyhow};
use http::Method;
use serde_json::json;

use super::Cluster;
use crate::bodies;
use crate::client::{Call, Failure, JSON, Keep};
use crate::load::{Plan, closed_loop};

/// What exists so far.
#[derive(Default)]
pub(super) struct Objects {
    nodes: usize,
    namespaces: usize,
    /// Nodes that are simulated already.
    pub(super) started: usize,
}

/// A namespace for so many nodes' pods.
const NODES_PER_NAMESPACE: usize = 50;
/// Services, each with one endpoint slice, of a namespace.
pub(super) const SERVICES_PER_NAMESPACE: usize = 2;

pub(super) fn node_name(node: usize) -> String {
    format!("hollow-{node:05}")
}

pub(super) fn namespace_of(node: usize) -> String {
    format!("cluster-{:03}", node / NODES_PER_NAMESPACE)
}

pub(super) fn namespaces(nodes: usize) -> usize {
    nodes.div_ceil(NODES_PER_NAMESPACE).max(1)
}

pub(super) fn lease_path(node: usize) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{}", node_name(node))
}

/// A lease as a kubelet renews it.
pub(super) fn lease(node: usize, version: &str, renewed: &str) -> String {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": node_name(node), "namespace": "kube-node-lease", "resourceVersion": version},
        "spec": {"holderIdentity": node_name(node), "leaseDurationSeconds": 40, "renewTime": renewed},
    })
    .to_string()
}

/// The time of day in the form of `MicroTime`.
pub(super) fn now() -> String {
    format!("{:.6}", jiff::Timestamp::now())
}

fn node(node: usize) -> String {
    let resources =
        json!({"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "200Gi"});
    let images: Vec<_> = (0..20)
        .map(|image| json!({"names": [format!("registry.example.com/shop/image-{image}:2.14.3")], "sizeBytes": 50_000_000}))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": node_name(node),
            "labels": {
                "kubernetes.io/hostname": node_name(node), "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/zone": format!("zone-{}", node % 3),
            },
        },
        "spec": {"podCIDR": format!("10.{}.{}.0/24", node / 256 % 256, node % 256)},
        "status": {
            "capacity": resources, "allocatable": resources, "images": images,
            "nodeInfo": {
                "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "6.1", "osImage": "Linux",
                "containerRuntimeVersion": "containerd://2.1", "kubeletVersion": "v1.36.0", "kubeProxyVersion": "",
                "operatingSystem": "linux", "architecture": "amd64",
            },
        },
    })
    .to_string()
}

/// What a kubelet patches every five minutes.
pub(super) fn node_status(moment: &str) -> String {
    let now = now();
    let second = format!("{}Z", &now[..19]);
    let kinds = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];
    let conditions: Vec<_> = kinds
        .iter()
        .map(|kind| {
            let status = if *kind == "Ready" { "True" } else { "False" };
            json!({"type": kind, "status": status, "lastHeartbeatTime": second})
        })
        .collect();
    json!({"metadata": {"annotations": {"bench-sent": moment}}, "status": {"conditions": conditions}}).to_string()
}

/// A pod of the given name; without a node it has to be bound.
pub(super) fn pod(name: &str, index: usize, node: Option<&str>) -> Vec<u8> {
    let filled = bodies::pod_template().named_pod(name, index, node.unwrap_or("@NODE@"));
    match node {
        Some(_) => filled.to_vec(),
        None => {
            String::from_utf8_lossy(&filled).replace(r#""nodeName":"@NODE@","#, "").into_bytes()
        }
    }
}

/// The four states that a kubelet reports on a pod's way up.
pub(super) fn pod_status(step: usize, moment: &str) -> String {
    let state = |ready: bool| {
        let state = if ready {
            json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}})
        } else {
            json!({"waiting": {"reason": "PodInitializing"}})
        };
        ["app", "proxy"].map(|name| {
            json!({"name": name, "ready": ready, "restartCount": 0, "image": "x", "imageID": "", "state": state})
        })
    };
    let condition =
        |kind: &str, met: bool| json!({"type": kind, "status": if met { "True" } else { "False" }});
    json!({
        "metadata": {"annotations": {"bench-sent": moment}},
        "status": {
            "phase": if step < 2 { "Pending" } else { "Running" },
            "podIP": "10.0.0.1",
            "podIPs": [{"ip": "10.0.0.1"}],
            "conditions": [
                condition("Initialized", step >= 1), condition("Ready", step >= 3),
                condition("ContainersReady", step >= 3), condition("PodScheduled", true),
            ],
            "containerStatuses": state(step >= 2),
        },
    })
    .to_string()
}

pub(super) fn slice_name(service: usize) -> String {
    format!("service-{service}-slice")
}

/// An endpoint slice with a hundred endpoints, as large Services have them.
fn slice(service: usize) -> String {
    let endpoints: Vec<_> = (0..100)
        .map(|endpoint| {
            json!({
                "addresses": [format!("10.1.{service}.{endpoint}")],
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "nodeName": node_name(endpoint),
                "targetRef": {"kind": "Pod", "name": format!("pod-{endpoint}"), "namespace": "x"},
            })
        })
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": slice_name(service),
            "labels": {"kubernetes.io/service-name": format!("service-{service}")},
        },
        "addressType": "IPv4", "endpoints": endpoints,
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    })
    .to_string()
}

impl Objects {
    /// Makes what is missing for so many nodes.
    pub(super) async fn grow(&mut self, cluster: &Cluster, nodes: usize) -> Result<()> {
        let wanted = namespaces(nodes);
        for index in self.namespaces..wanted {
            self.make_namespace(cluster, index).await?;
        }
        self.namespaces = self.namespaces.max(wanted);
        let first = self.nodes;
        many(nodes.saturating_sub(first), async |number| {
            let index = first + number;
            create(cluster, "/api/v1/nodes".to_owned(), node(index)).await?;
            let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
            create(cluster, leases.to_owned(), lease(index, "", &now())).await
        })
        .await?;
        let per_node = cluster.load.pods_per_node;
        many(nodes.saturating_sub(first) * per_node, async |number| {
            let (node, pod_number) = (first + number / per_node, number % per_node);
            let name = format!("{}-{pod_number:03}", node_name(node));
            let body = pod(&name, node * per_node + pod_number, Some(&node_name(node)));
            create(cluster, format!("/api/v1/namespaces/{}/pods", namespace_of(node)), body).await
        })
        .await?;
        self.nodes = self.nodes.max(nodes);
        Ok(())
    }

    async fn make_namespace(&self, cluster: &Cluster, index: usize) -> Result<()> {
        let name = namespace_of(index * NODES_PER_NAMESPACE);
        let made = async |path: String, body: String| {
            create(cluster, path, body).await.map_err(|failure| anyhow!("{failure}"))
        };
        made("/api/v1/namespaces".into(), json!({"metadata": {"name": name}}).to_string()).await?;
        let data = json!({"metadata": {"name": "checkout-config"}, "data": {"features": "x".repeat(2000)}});
        made(format!("/api/v1/namespaces/{name}/configmaps"), data.to_string()).await?;
        let secret =
            json!({"metadata": {"name": "checkout-db"}, "stringData": {"url": "x".repeat(200)}});
        made(format!("/api/v1/namespaces/{name}/secrets"), secret.to_string()).await?;
        let account = json!({"metadata": {"name": "default"}});
        made(format!("/api/v1/namespaces/{name}/serviceaccounts"), account.to_string()).await?;
        for service in 0..SERVICES_PER_NAMESPACE {
            let body = json!({
                "metadata": {"name": format!("service-{service}")},
                "spec": {"selector": {"app": "checkout"}, "ports": [{"port": 80, "targetPort": 8080}]},
            });
            made(format!("/api/v1/namespaces/{name}/services"), body.to_string()).await?;
            let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{name}/endpointslices");
            made(slices, slice(service)).await?;
        }
        Ok(())
    }
}

/// Creates an object; one that an earlier run left is as good.
pub(super) async fn create(
    cluster: &Cluster,
    path: String,
    body: impl Into<bytes::Bytes>,
) -> Result<(), Failure> {
    let call = Call::send(Method::POST, path, JSON, body);
    match cluster.client.ok(&call, Keep::Nothing).await {
        Ok(_) | Err(Failure { code: Some(409), .. }) => Ok(()),
        Err(failure) => Err(failure),
    }
}

async fn many(count: usize, make: impl AsyncFn(usize) -> Result<(), Failure>) -> Result<()> {
    let plan = Plan { at_once: 64, count, cap: Duration::from_hours(2) };
    let made = closed_loop(plan, async |_, number| make(number).await.map(|()| 0)).await;
    made.first_failure.map_or(Ok(()), |failure| Err(anyhow!("making the objects: {failure}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_a_node_or_none() {
        let bound = String::from_utf8(pod("a", 1, Some("n"))).expect("text");
        assert!(bound.contains(r#""nodeName":"n""#) && bound.contains(r#""name":"a""#));
        let unbound = String::from_utf8(pod("a", 1, None)).expect("text");
        assert!(!unbound.contains("nodeName\":\"@") && !unbound.contains('@'), "{unbound}");
        assert!(serde_json::from_str::<serde_json::Value>(&unbound).is_ok());
    }
}
