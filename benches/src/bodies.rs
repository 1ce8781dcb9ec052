//! The objects that are sent: deterministic, and shaped like those of a real cluster.
//!
//! Each kind is a JSON template that is built once; an object is the template with its placeholders
//! filled in, which costs the generator a few microseconds.

pub(crate) mod custom;

use bytes::Bytes;
use serde_json::{Value, json};

/// The annotation that updates and patches change, as it stands in an object's JSON.
pub(crate) const REVISION_MARKER: &str = "\"bench-revision\":\"";
/// The annotation that carries the moment of a write to the watchers.
pub(crate) const SENT_ANNOTATION: &str = "bench-sent";
/// Pods are deleted in groups of this many.
pub(crate) const GROUP_PODS: usize = 500;
/// Pods are spread over this many nodes.
const NODES: usize = 100;
/// The first so many pods share a node of their own, so that a list by this node answers with the
/// same pods however many others there are.
pub(crate) const FIXED_NODE_PODS: usize = 100;
pub(crate) const FIXED_NODE: &str = "node-fixed";
/// A node of the spread.
pub(crate) const SPREAD_NODE: &str = "node-042";

/// JSON with placeholders `@NAME@`, `@INDEX@`, ….
pub(crate) struct Template(String);

impl Template {
    fn of(value: &Value) -> Self {
        Self(value.to_string())
    }

    fn fill(&self, values: &[(&str, &str)]) -> Bytes {
        let mut text = self.0.clone();
        for (placeholder, value) in values {
            text = text.replace(placeholder, value);
        }
        Bytes::from(text)
    }

    /// Pod number `index`, named by [`pod_name`].
    pub(crate) fn pod(&self, index: usize) -> Bytes {
        self.named_pod(&pod_name(index), index, &node_of(index))
    }

    pub(crate) fn named_pod(&self, name: &str, index: usize, node: &str) -> Bytes {
        self.fill(&[
            ("@NAME@", name),
            ("@NODE@", node),
            ("@ONE_PERCENT@", if is_one_percent(index) { "yes" } else { "no" }),
            ("@GROUP@", &group_of(index)),
            ("@SHARD@", &format!("{}", index % 16)),
            ("@INDEX@", &index.to_string()),
        ])
    }

    /// Deployment number `index` in its `revision`: a new revision is a changed object.
    pub(crate) fn deployment(&self, index: usize, revision: usize) -> Bytes {
        self.fill(&[
            ("@NAME@", &deployment_name(index)),
            ("\"@REPLICAS@\"", &format!("{}", 2 + revision % 7)),
            ("@TAG@", &format!("v1.{revision}")),
            ("@SHARD@", &format!("{}", index % 16)),
            ("@INDEX@", &index.to_string()),
        ])
    }

    /// Custom resource number `index`, named by [`custom_name`].
    pub(crate) fn custom(&self, index: usize) -> Bytes {
        self.fill(&[("@NAME@", &custom_name(index)), ("@INDEX@", &index.to_string())])
    }
}

pub(crate) fn pod_name(index: usize) -> String {
    format!("pod-{index:06}")
}

pub(crate) fn deployment_name(index: usize) -> String {
    format!("web-{index:06}")
}

pub(crate) fn custom_name(index: usize) -> String {
    format!("custom-{index:06}")
}

pub(crate) fn group_of(index: usize) -> String {
    format!("group-{:04}", index / GROUP_PODS)
}

fn node_of(index: usize) -> String {
    if index < FIXED_NODE_PODS {
        FIXED_NODE.to_owned()
    } else {
        format!("node-{:03}", index % NODES)
    }
}

/// One pod in a hundred is labelled `bench-one-percent=yes`.
fn is_one_percent(index: usize) -> bool {
    index.is_multiple_of(100)
}

/// How many of the first `pods` carry the one-percent label.
pub(crate) fn one_percent_of(pods: usize) -> usize {
    (0..pods).filter(|&index| is_one_percent(index)).count()
}

/// How many of the first `pods` are on `node`.
pub(crate) fn on_node(node: &str, pods: usize) -> usize {
    (0..pods).filter(|&index| node_of(index) == node).count()
}

/// A pod as a deployment of a web application makes it: some 5 KB as sent.
pub(crate) fn pod_template() -> Template {
    Template::of(&json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "@NAME@",
            "labels": {
                "app.kubernetes.io/name": "checkout",
                "app.kubernetes.io/instance": "checkout-@SHARD@",
                "app.kubernetes.io/component": "backend",
                "app.kubernetes.io/part-of": "shop",
                "app.kubernetes.io/managed-by": "bench",
                "pod-template-hash": "6d4f9c7b58",
                "bench-one-percent": "@ONE_PERCENT@",
                "bench-group": "@GROUP@",
            },
            "annotations": {
                "bench-revision": "0",
                "bench-index": "@INDEX@",
                "prometheus.io/scrape": "true",
                "prometheus.io/port": "9102",
                "prometheus.io/path": "/metrics",
                "checksum/config": "5f2b0c1d3e4f5a6b7c8d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d",
                "sidecar.example.com/status":
                    "{\"version\":\"7c1f\",\"initContainers\":[\"init\"],\"containers\":[\"proxy\"],\"volumes\":[\"tmp\"]}",
            },
        },
        "spec": {
            "nodeName": "@NODE@",
            "terminationGracePeriodSeconds": 45,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 10001, "fsGroup": 10001},
            "initContainers": [{
                "name": "init",
                "image": "registry.example.com/shop/migrate:2.14.3",
                "command": ["/bin/migrate", "--wait", "--timeout=60s"],
                "resources": {
                    "requests": {"cpu": "50m", "memory": "64Mi"},
                    "limits": {"cpu": "500m", "memory": "128Mi"},
                },
                "volumeMounts": [{"name": "config", "mountPath": "/etc/checkout", "readOnly": true}],
            }],
            "containers": [app_container(), proxy_container()],
            "volumes": [
                {"name": "config", "configMap": {"name": "checkout-config", "defaultMode": 420}},
                {"name": "tls", "secret": {"secretName": "checkout-tls", "optional": true}},
                {"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}},
                {"name": "cache", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
            ],
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [
                        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]},
                        {"key": "node.example.com/pool", "operator": "NotIn", "values": ["batch"]},
                    ]}],
                }},
                "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
                    "weight": 100,
                    "podAffinityTerm": {
                        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "checkout"}},
                        "topologyKey": "kubernetes.io/hostname",
                    },
                }]},
            },
            "topologySpreadConstraints": [{
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "checkout"}},
            }],
            "tolerations": [
                {"key": "dedicated", "operator": "Equal", "value": "web", "effect": "NoSchedule"},
                {"key": "node.example.com/spot", "operator": "Exists"},
            ],
        },
    }))
}

fn app_container() -> Value {
    json!({
        "name": "app",
        "image": "registry.example.com/shop/checkout:2.14.3",
        "args": ["serve", "--listen=:8080", "--admin=:8081", "--log-format=json"],
        "ports": [
            {"name": "http", "containerPort": 8080},
            {"name": "admin", "containerPort": 8081},
            {"name": "metrics", "containerPort": 9102},
        ],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "MEMORY_LIMIT", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}},
            {"name": "DATABASE_URL", "valueFrom": {"secretKeyRef": {"name": "checkout-db", "key": "url"}}},
            {"name": "FEATURES", "valueFrom": {"configMapKeyRef": {"name": "checkout-config", "key": "features"}}},
            {"name": "CACHE_ADDR", "value": "cache.shop.svc.cluster.local:6379"},
            {"name": "QUEUE_ADDR", "value": "queue.shop.svc.cluster.local:5672"},
            {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://otel-collector.observability:4317"},
            {"name": "OTEL_RESOURCE_ATTRIBUTES", "value": "service.name=checkout,service.namespace=shop"},
            {"name": "REQUEST_TIMEOUT", "value": "2500ms"},
            {"name": "SHARD", "value": "@SHARD@"},
        ],
        "resources": {
            "requests": {"cpu": "250m", "memory": "256Mi"},
            "limits": {"cpu": "1", "memory": "512Mi"},
        },
        "startupProbe": {
            "httpGet": {"path": "/started", "port": "admin"}, "failureThreshold": 30, "periodSeconds": 2,
        },
        "readinessProbe": {
            "httpGet": {"path": "/ready", "port": "admin"}, "periodSeconds": 5, "timeoutSeconds": 2,
        },
        "livenessProbe": {
            "httpGet": {"path": "/alive", "port": "admin"}, "periodSeconds": 10, "failureThreshold": 4,
        },
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/checkout", "drain", "--for=15s"]}}},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/checkout", "readOnly": true},
            {"name": "tls", "mountPath": "/etc/tls", "readOnly": true},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "cache", "mountPath": "/var/cache/checkout"},
        ],
    })
}

fn proxy_container() -> Value {
    json!({
        "name": "proxy",
        "image": "registry.example.com/mesh/proxy:1.29.1",
        "args": ["proxy", "sidecar", "--concurrency=2", "--log-level=warning"],
        "ports": [{"name": "proxy", "containerPort": 15001}],
        "env": [
            {"name": "INSTANCE_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "MESH_ID", "value": "mesh-eu-1"},
        ],
        "resources": {
            "requests": {"cpu": "20m", "memory": "48Mi"},
            "limits": {"cpu": "200m", "memory": "128Mi"},
        },
        "readinessProbe": {"tcpSocket": {"port": 15001}, "periodSeconds": 5},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    })
}

/// A Deployment for server-side apply, with the containers of the pod.
pub(crate) fn deployment_template() -> Template {
    let mut app = app_container();
    app["image"] = json!("registry.example.com/shop/checkout:@TAG@");
    Template::of(&json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "@NAME@",
            "labels": {"app.kubernetes.io/name": "checkout", "app.kubernetes.io/part-of": "shop"},
            "annotations": {"bench-index": "@INDEX@"},
        },
        "spec": {
            "replicas": "@REPLICAS@",
            "selector": {"matchLabels": {"app.kubernetes.io/instance": "@NAME@"}},
            "template": {
                "metadata": {"labels": {
                    "app.kubernetes.io/instance": "@NAME@", "app.kubernetes.io/name": "checkout",
                }},
                "spec": {
                    "containers": [app, proxy_container()],
                    "volumes": [
                        {"name": "config", "configMap": {"name": "checkout-config"}},
                        {"name": "tls", "secret": {"secretName": "checkout-tls", "optional": true}},
                        {"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}},
                        {"name": "cache", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
                    ],
                    "tolerations": [{"key": "node.example.com/spot", "operator": "Exists"}],
                },
            },
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(body: &Bytes) -> Value {
        serde_json::from_slice(body).unwrap()
    }

    #[test]
    fn every_template_fills_to_json_without_placeholders() {
        let bodies = [
            pod_template().pod(0),
            pod_template().pod(12_345),
            deployment_template().deployment(7, 3),
            custom::widgets().template.custom(5),
            custom::widgets().crd,
            custom::gadgets().template.custom(5),
            custom::gadgets().crd,
            custom::platform_crd(7),
        ];
        for body in &bodies {
            assert!(object(body).is_object());
            assert!(!body.contains(&b'@'), "{}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn a_pod_is_about_five_kilobytes_and_carries_the_revision() {
        let pod = pod_template().pod(200);
        assert!((4_500..5_500).contains(&pod.len()), "{}", pod.len());
        assert!(String::from_utf8_lossy(&pod).contains(REVISION_MARKER));
        assert_eq!(object(&pod)["spec"]["nodeName"], "node-000");
        assert_eq!(object(&pod)["metadata"]["labels"]["bench-one-percent"], "yes");
        assert_eq!(object(&pod)["metadata"]["labels"]["bench-group"], "group-0000");
    }

    #[test]
    fn a_new_revision_changes_a_deployment() {
        let template = deployment_template();
        assert_eq!(object(&template.deployment(1, 1))["spec"]["replicas"], 3);
        assert_ne!(template.deployment(1, 1), template.deployment(1, 2));
        assert_eq!(template.deployment(1, 2), template.deployment(1, 2));
    }

    #[test]
    fn expected_counts_follow_the_spread() {
        assert_eq!(one_percent_of(10_000), 100);
        assert_eq!(on_node(FIXED_NODE, 1_000), 100);
        assert_eq!(on_node(FIXED_NODE, 10_000), 100);
        assert_eq!(on_node(SPREAD_NODE, 10_000), 99);
    }
}
