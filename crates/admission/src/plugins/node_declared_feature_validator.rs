//! A running pod is changed only in ways that its node declares to support.

use meta::{ApiError, Value, field::quote};

use super::pod_resources::list_of;
use crate::{Attributes, BoxFuture, Cluster, Freshness, Operation, Phases, Plugin, resources};

pub struct NodeDeclaredFeatureValidator {
    /// The gate NodeDeclaredFeatures.
    pub enabled: bool,
}

impl Plugin for NodeDeclaredFeatureValidator {
    fn name(&self) -> &'static str {
        "NodeDeclaredFeatureValidator"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Update
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        self.enabled && (attributes.is_pod() || attributes.is("", "pods", "resize"))
    }

    fn phases(&self) -> Phases {
        Phases::Validating
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let (Some(pod), Some(old)) = (object, attributes.old) else { return Ok(()) };
            let name = pod.str_at(&["spec", "nodeName"]);
            // The generation counts changes of the spec.
            let generation = ["metadata", "generation"];
            if name.is_empty() || pod.i64_at(&generation) == old.i64_at(&generation) {
                return Ok(());
            }
            let required = required_features(pod, old);
            if required.is_empty() {
                return Ok(());
            }
            let node = cluster.objects.get(&resources::NODES, "", name, Freshness::Cached).await?;
            let Some(node) = node else {
                return Err(attributes.forbidden(object, format!("node {} not found", quote(name))));
            };
            let declared = node.items_at(&["status", "declaredFeatures"]);
            let has = |feature: &&str| declared.iter().any(|own| own.as_str() == Some(*feature));
            let missing: Vec<&str> = required.into_iter().filter(|feature| !has(feature)).collect();
            if missing.is_empty() {
                return Ok(());
            }
            let why = format!(
                "pod update requires features {} which are not available on node {}",
                missing.join(", "),
                quote(name)
            );
            Err(attributes.forbidden(object, why))
        })
    }
}

/// The features that a node needs for an update. Upstream's other features are of fields that cannot
/// change.
fn required_features(pod: &Value, old: &Value) -> Vec<&'static str> {
    let mut required = Vec::new();
    let of_pod = |pod: &Value| resources_of(pod.get("spec").unwrap_or(&Value::Null));
    if of_pod(pod) != of_pod(old) {
        required.push("InPlacePodLevelResourcesVerticalScaling");
    }
    let path = ["spec", "initContainers"];
    let mut init = old.items_at(&path).iter().zip(pod.items_at(&path));
    let is_resized = |(old, new): (&Value, &Value)| {
        old.str_at(&["restartPolicy"]) != "Always" && resources_of(old) != resources_of(new)
    };
    if init.any(is_resized) {
        required.push("InPlacePodVerticalScalingInitContainers");
    }
    required
}

/// Requests and limits, as amounts.
fn resources_of(holder: &Value) -> [super::pod_resources::ResourceList; 2] {
    ["requests", "limits"].map(|field| list_of(holder.get("resources"), field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{cluster, update, yaml};

    #[test]
    fn changes_need_features_of_the_node() {
        let nodes = [
            (&resources::NODES, "{metadata: {name: old}}"),
            (
                &resources::NODES,
                "{metadata: {name: new}, status: {declaredFeatures: [InPlacePodLevelResourcesVerticalScaling, InPlacePodVerticalScalingInitContainers]}}",
            ),
        ];
        let pod = |generation: i64, node: &str, cpu: [&str; 3]| {
            let resources = |cpu: &str| format!("resources: {{requests: {{cpu: {cpu}}}}}");
            yaml(&format!(
                "{{metadata: {{name: p, generation: {generation}}}, spec: {{nodeName: '{node}', {}, \
                 initContainers: [{{{}}}, {{restartPolicy: Always, {}}}]}}}}",
                resources(cpu[0]),
                resources(cpu[1]),
                resources(cpu[2])
            ))
        };
        let (of_pod, of_init) =
            ("InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers");
        let missing = |features: String| {
            format!(
                "pods \"p\" is forbidden: pod update requires features {features} which are not \
                 available on node \"old\""
            )
        };
        let cases = [
            (2, "new", ["2", "2", "2"], String::new()),
            (2, "old", ["2", "2", "2"], missing(format!("{of_pod}, {of_init}"))),
            (2, "old", ["2", "1", "1"], missing(of_pod.to_owned())),
            (2, "old", ["1", "2", "1"], missing(of_init.to_owned())),
            (2, "old", ["1000m", "1", "2"], String::new()),
            (1, "old", ["2", "2", "2"], String::new()),
            (2, "", ["2", "2", "2"], String::new()),
            (
                2,
                "gone",
                ["2", "1", "1"],
                "pods \"p\" is forbidden: node \"gone\" not found".to_owned(),
            ),
        ];
        for (generation, node, cpu, expected) in cases {
            let new = pod(generation, node, cpu);
            for enabled in [true, false] {
                let request =
                    update(&resources::PODS, pod(1, node, ["1"; 3])).subresource("resize");
                let plugin = NodeDeclaredFeatureValidator { enabled };
                let outcome = request.validate(&plugin, &new, &cluster(&nodes, &[]));
                assert_eq!(outcome.message(), if enabled { expected.as_str() } else { "" });
            }
        }
    }
}
