//! A pod that refuses to share a topology with others may do so for nodes only, not for zones.

use meta::{ApiError, Value};

use crate::{Attributes, BoxFuture, Cluster, Operation, Phases, Plugin};

pub struct LimitPodHardAntiAffinityTopology;

const HOSTNAME: &str = "kubernetes.io/hostname";

impl Plugin for LimitPodHardAntiAffinityTopology {
    fn name(&self) -> &'static str {
        "LimitPodHardAntiAffinityTopology"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is_pod()
    }

    fn phases(&self) -> Phases {
        Phases::Validating
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        _cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let path = [
            "spec",
            "affinity",
            "podAntiAffinity",
            "requiredDuringSchedulingIgnoredDuringExecution",
        ];
        let terms = object.map(|pod| pod.items_at(&path)).unwrap_or_default().iter();
        let mut keys = terms.map(|term| term.str_at(&["topologyKey"]));
        let result = match keys.find(|key| *key != HOSTNAME) {
            None => Ok(()),
            Some(key) => Err(attributes.forbidden(
                object,
                format!(
                    "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but \
                     only key {HOSTNAME} is allowed"
                ),
            )),
        };
        Box::pin(std::future::ready(result))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        harness::{cluster, create, yaml},
        resources,
    };

    #[test]
    fn only_nodes_are_kept_for_oneself() {
        let plugin = LimitPodHardAntiAffinityTopology;
        let cases = [
            ("{}", ""),
            (
                "{podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname}]}}",
                "",
            ),
            (
                "{podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{podAffinityTerm: {topologyKey: zone}}]}}",
                "",
            ),
            (
                "{podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone}]}}",
                "",
            ),
            (
                "{podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname}, {topologyKey: zone}]}}",
                "pods \"p\" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only key kubernetes.io/hostname is allowed",
            ),
        ];
        for (affinity, expected) in cases {
            let pod = yaml(&format!("{{metadata: {{name: p}}, spec: {{affinity: {affinity}}}}}"));
            let outcome = create(&resources::PODS).validate(&plugin, &pod, &cluster(&[], &[]));
            assert_eq!(outcome.message(), expected, "{affinity}");
        }
    }
}
