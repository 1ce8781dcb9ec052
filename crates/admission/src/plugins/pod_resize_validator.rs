//! A pod that runs is resized only within what its node has, and only on Linux.

use meta::{ApiError, Cause, Value, field::quote, quantity::Quantity};

use super::pod_resources::{add, list_of, of_pod};
use crate::{Attributes, BoxFuture, Cluster, Freshness, Operation, Phases, Plugin, resources};

pub struct PodResizeValidator;

impl Plugin for PodResizeValidator {
    fn name(&self) -> &'static str {
        "PodResizeValidator"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Update
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is("", "pods", "resize")
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
            let node = cluster.objects.get(&resources::NODES, "", name, Freshness::Cached).await?;
            let Some(node) = node else {
                return Err(attributes.forbidden(object, format!("node {} not found", quote(name))));
            };
            let checked = check_platform(&node).map_err(|why| (why, "UnsupportedPlatform"));
            let checked = checked
                .and_then(|()| check_allocatable(pod, &node).map_err(|why| (why, "NodeCapacity")));
            checked.map_err(|(why, reason)| match attributes.forbidden(object, why) {
                ApiError::Forbidden { resource, name, why, .. } => {
                    let causes = vec![Cause { reason: reason.to_owned(), ..Cause::default() }];
                    ApiError::Forbidden { resource, name, why, causes }
                }
                other => other,
            })
        })
    }
}

fn check_platform(node: &Value) -> Result<(), String> {
    match node.at(&["metadata", "labels", "kubernetes.io/os"]).and_then(Value::as_str) {
        None | Some("linux") => Ok(()),
        Some(os) => Err(format!(
            "pod resize is only supported on linux nodes, node {} is {}",
            quote(node.str_at(&["metadata", "name"])),
            quote(os)
        )),
    }
}

fn check_allocatable(pod: &Value, node: &Value) -> Result<(), String> {
    let mut requests = of_pod(pod, "requests", true);
    add(&mut requests, &list_of(pod.get("spec"), "overhead"));
    let allocatable = list_of(node.get("status"), "allocatable");
    let none = Quantity::default();
    let mut short = Vec::new();
    for (name, number) in
        [("cpu", Quantity::milli_value as fn(&Quantity) -> i64), ("memory", Quantity::value)]
    {
        let requested = requests.get(name).unwrap_or(&none);
        let allocatable = allocatable.get(name).unwrap_or(&none);
        if requested > allocatable {
            let (requested, allocatable) = (number(requested), number(allocatable));
            short.push(format!("{name}, requested: {requested}, allocatable: {allocatable}"));
        }
    }
    if short.is_empty() {
        return Ok(());
    }
    Err(format!("node didn't have enough allocatable resources: {}", short.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{cluster, update, yaml};

    #[test]
    fn pods_are_resized_within_their_node() {
        let nodes = [
            (
                &resources::NODES,
                "{metadata: {name: n1, labels: {kubernetes.io/os: linux}}, status: {allocatable: {cpu: 2, memory: 1Gi}}}",
            ),
            (
                &resources::NODES,
                "{metadata: {name: w, labels: {kubernetes.io/os: windows}}, status: {allocatable: {cpu: 2}}}",
            ),
        ];
        let pod = |generation: i64, node: &str, requests: &str| {
            yaml(&format!(
                "{{metadata: {{name: p, generation: {generation}}}, spec: {{nodeName: '{node}', \
                 overhead: {{cpu: 100m}}, containers: [{{resources: {{requests: {{{requests}}}}}}}]}}}}"
            ))
        };
        let forbidden = |why: &str| format!("pods \"p\" is forbidden: {why}");
        let short = "node didn't have enough allocatable resources: cpu, requested: 2100, allocatable: \
                     2000; memory, requested: 2147483648, allocatable: 1073741824";
        let windows = "pod resize is only supported on linux nodes, node \"w\" is \"windows\"";
        let cases = [
            (2, "n1", "cpu: 1900m", String::new(), ""),
            (2, "n1", "cpu: 2, memory: 2Gi", forbidden(short), "NodeCapacity"),
            (1, "n1", "cpu: 2, memory: 2Gi", String::new(), ""),
            (2, "", "cpu: 20", String::new(), ""),
            (2, "w", "cpu: 1", forbidden(windows), "UnsupportedPlatform"),
            (2, "gone", "cpu: 1", forbidden("node \"gone\" not found"), ""),
        ];
        for (generation, node, requests, expected, reason) in cases {
            let request = update(&resources::PODS, pod(1, node, "cpu: 1")).subresource("resize");
            let pod = pod(generation, node, requests);
            let outcome = request.validate(&PodResizeValidator, &pod, &cluster(&nodes, &[]));
            assert_eq!(outcome.message(), expected);
            let details = outcome.error.and_then(|error| error.status().details);
            let causes = details.map(|details| details.causes).unwrap_or_default();
            assert_eq!(causes.first().map_or("", |cause| cause.reason.as_str()), reason);
        }
    }
}
