//! A pod that is bound to a node gets the node's zone and region as labels.

use meta::{ApiError, Value};

use crate::{Attributes, BoxFuture, Cluster, Freshness, Operation, Phases, Plugin, resources};

pub struct PodTopologyLabels {
    /// The gate PodTopologyLabelsAdmission.
    pub enabled: bool,
}

const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

impl Plugin for PodTopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        self.enabled && (attributes.is_pod() || attributes.is("", "pods", "binding"))
    }

    fn phases(&self) -> Phases {
        Phases::Mutating
    }

    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(object) = object else { return Ok(()) };
            let node = if attributes.subresource.is_empty() {
                object.str_at(&["spec", "nodeName"])
            } else if object.str_at(&["target", "kind"]) == "Node" {
                object.str_at(&["target", "name"])
            } else {
                ""
            };
            if node.is_empty() {
                return Ok(());
            }
            let node = cluster.objects.get(&resources::NODES, "", node, Freshness::Cached).await?;
            let Some(node) = node else { return Ok(()) };
            for label in LABELS {
                if let Some(value) = node.at(&["metadata", "labels", label]) {
                    object.set_at(&["metadata", "labels", label], value.clone());
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{cluster, create, yaml};

    #[test]
    fn bound_pods_have_the_topology_of_their_node() {
        let nodes = [
            (
                &resources::NODES,
                "{metadata: {name: n1, labels: {topology.kubernetes.io/zone: z, \
                 topology.kubernetes.io/region: r, other: x}}}",
            ),
            (&resources::NODES, "{metadata: {name: bare}}"),
        ];
        let labels = "topology.kubernetes.io/zone: z, topology.kubernetes.io/region: r";
        let bound = |labels: &str, kind: &str| {
            format!("{{metadata: {{labels: {{{labels}}}}}, target: {{kind: {kind}, name: n1}}}}")
        };
        let pod = |labels: &str, node: &str| {
            format!("{{metadata: {{labels: {{{labels}}}}}, spec: {{nodeName: '{node}'}}}}")
        };
        let cases = [
            ("binding", bound("", "Node"), bound(labels, "Node")),
            ("binding", bound("topology.kubernetes.io/zone: mine", "Node"), bound(labels, "Node")),
            ("binding", bound("", "Other"), bound("", "Other")),
            ("", pod("a: b", "n1"), pod(&format!("a: b, {labels}"), "n1")),
            ("", pod("", "bare"), pod("", "bare")),
            ("", pod("", "gone"), pod("", "gone")),
            ("", pod("", ""), pod("", "")),
            ("eviction", pod("", "n1"), pod("", "n1")),
        ];
        for (subresource, object, expected) in cases {
            for enabled in [true, false] {
                let mut changed = yaml(&object);
                let request = create(&resources::PODS).subresource(subresource);
                request.admit(&PodTopologyLabels { enabled }, &mut changed, &cluster(&nodes, &[]));
                assert_eq!(changed, yaml(if enabled { &expected } else { &object }));
            }
        }
    }
}
