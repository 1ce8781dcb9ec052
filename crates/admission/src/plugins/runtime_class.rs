//! A pod gets the overhead, node selector and tolerations of its RuntimeClass.

use meta::{ApiError, Value, field::quote, quantity::Quantity};

use super::tolerations;
use crate::{Attributes, BoxFuture, Cluster, Freshness, Operation, Plugin, resources};

pub struct RuntimeClass;

impl Plugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is_pod()
    }

    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(pod) = object else { return Ok(()) };
            let Some(class) = class_of(pod, attributes, cluster).await? else { return Ok(()) };
            let set = set_overhead(pod, &class).and_then(|()| set_scheduling(pod, &class));
            set.map_err(|why| attributes.forbidden(Some(pod), why))
        })
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(pod) = object else { return Ok(()) };
            let class = class_of(pod, attributes, cluster).await?;
            let checked = check_overhead(pod, class.as_ref());
            checked.map_err(|why| attributes.forbidden(object, why))
        })
    }
}

async fn class_of(
    pod: &Value,
    attributes: &Attributes<'_>,
    cluster: &Cluster,
) -> Result<Option<Value>, ApiError> {
    let name = pod.at(&["spec", "runtimeClassName"]).and_then(Value::as_str);
    let Some(name) = name else { return Ok(None) };
    if name.is_empty() {
        // Compat: the client that kube-apiserver looks the class up with refuses to ask for it.
        return Err(ApiError::Storage("resource name may not be empty".to_owned()));
    }
    for freshness in [Freshness::Cached, Freshness::Linearizable] {
        let found = cluster.objects.get(&resources::RUNTIME_CLASSES, "", name, freshness).await?;
        if found.is_some() {
            return Ok(found);
        }
    }
    let why = format!("pod rejected: RuntimeClass {} not found", quote(name));
    Err(attributes.forbidden(Some(pod), why))
}

const OTHER_OVERHEAD: &str =
    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

fn set_overhead(pod: &mut Value, class: &Value) -> Result<(), String> {
    let Some(overhead) = overhead_of(class) else { return Ok(()) };
    let given = pod.at(&["spec", "overhead"]).and_then(Value::as_object);
    let given_some = given.is_some_and(|given| !given.is_empty());
    if given_some && !are_equal(pod.at(&["spec", "overhead"]), overhead.get("podFixed")) {
        return Err(OTHER_OVERHEAD.to_owned());
    }
    match overhead.get("podFixed") {
        Some(fixed) => pod.set_at(&["spec", "overhead"], fixed.clone()),
        None => drop(pod.remove_at(&["spec", "overhead"])),
    }
    Ok(())
}

fn overhead_of(class: &Value) -> Option<&Value> {
    class.get("overhead").filter(|overhead| !overhead.is_null())
}

fn check_overhead(pod: &Value, class: Option<&Value>) -> Result<(), String> {
    let given = pod.at(&["spec", "overhead"]).filter(|given| !given.is_null());
    match class.and_then(overhead_of) {
        Some(overhead) if are_equal(given, overhead.get("podFixed")) => Ok(()),
        Some(_) => Err(OTHER_OVERHEAD.to_owned()),
        None if given.is_none() => Ok(()),
        None => {
            let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined \
                       Overhead";
            Err(why.to_owned())
        }
    }
}

/// Whether two lists of resources have the same amounts, however these are written.
fn are_equal(a: Option<&Value>, b: Option<&Value>) -> bool {
    let list = |value: Option<&Value>| -> Vec<(String, Option<Quantity>)> {
        let map = value.and_then(Value::as_object).into_iter().flat_map(meta::Map::iter);
        map.map(|(name, amount)| (name.to_string(), Quantity::from_value(amount).ok())).collect()
    };
    list(a) == list(b)
}

fn set_scheduling(pod: &mut Value, class: &Value) -> Result<(), String> {
    let Some(scheduling) = class.get("scheduling").filter(|value| !value.is_null()) else {
        return Ok(());
    };
    let selector = scheduling.get("nodeSelector").and_then(Value::as_object);
    for (key, wanted) in selector.into_iter().flat_map(meta::Map::iter) {
        let wanted = wanted.as_str().unwrap_or_default();
        let given = pod.at(&["spec", "nodeSelector", key]).and_then(Value::as_str);
        if let Some(given) = given.filter(|given| *given != wanted) {
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; \
                 pod.spec.nodeSelector[{key}] = {given}"
            ));
        }
        pod.set_at(&["spec", "nodeSelector", key], wanted);
    }
    let of_pod = pod.items_at(&["spec", "tolerations"]);
    let merged = tolerations::merge(of_pod, scheduling.items_at(&["tolerations"]));
    if !merged.is_empty() {
        pod.set_at(&["spec", "tolerations"], merged);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{cluster, create, yaml};

    const CLASSES: [&str; 3] = [
        "{metadata: {name: plain}}",
        "{metadata: {name: heavy}, overhead: {podFixed: {cpu: 100m, memory: 1Gi}}}",
        "{metadata: {name: placed}, scheduling: {nodeSelector: {a: b}, tolerations: [{key: k, operator: Exists}]}}",
    ];

    #[test]
    fn pods_get_what_their_class_says() {
        let other = "pods \"p\" is forbidden: pod rejected: Pod's Overhead doesn't match \
                     RuntimeClass's defined Overhead";
        let cases = [
            ("{}", "{}", ""),
            ("{runtimeClassName: plain}", "{runtimeClassName: plain}", ""),
            (
                "{runtimeClassName: heavy}",
                "{runtimeClassName: heavy, overhead: {cpu: 100m, memory: 1Gi}}",
                "",
            ),
            (
                "{runtimeClassName: heavy, overhead: {cpu: '0.1', memory: 1024Mi}}",
                "{runtimeClassName: heavy, overhead: {cpu: 100m, memory: 1Gi}}",
                "",
            ),
            ("{runtimeClassName: heavy, overhead: {cpu: 1}}", "", other),
            (
                "{runtimeClassName: placed}",
                "{runtimeClassName: placed, nodeSelector: {a: b}, tolerations: [{key: k, operator: Exists}]}",
                "",
            ),
            (
                "{runtimeClassName: placed, nodeSelector: {a: b, c: d}, tolerations: [{operator: Exists}]}",
                "{runtimeClassName: placed, nodeSelector: {a: b, c: d}, tolerations: [{operator: Exists}]}",
                "",
            ),
            (
                "{runtimeClassName: placed, nodeSelector: {a: x}}",
                "",
                "pods \"p\" is forbidden: conflict: runtimeClass.scheduling.nodeSelector[a] = b; \
                 pod.spec.nodeSelector[a] = x",
            ),
            (
                "{runtimeClassName: gone}",
                "",
                "pods \"p\" is forbidden: pod rejected: RuntimeClass \"gone\" not found",
            ),
            ("{runtimeClassName: ''}", "", "resource name may not be empty"),
        ];
        let classes = CLASSES.map(|class| (&resources::RUNTIME_CLASSES, class));
        for (spec, expected, message) in cases {
            let pod = |spec: &str| yaml(&format!("{{metadata: {{name: p}}, spec: {spec}}}"));
            let mut object = pod(spec);
            let outcome =
                create(&resources::PODS).admit(&RuntimeClass, &mut object, &cluster(&classes, &[]));
            assert_eq!(outcome.message(), message, "{spec}");
            if message.is_empty() {
                assert_eq!(object, pod(expected));
            }
        }
    }

    #[test]
    fn overhead_is_that_of_the_class() {
        let cases = [
            ("{}", ""),
            (
                "{overhead: {cpu: 1}}",
                "pods \"p\" is forbidden: pod rejected: Pod Overhead set without corresponding \
                 RuntimeClass defined Overhead",
            ),
            (
                "{runtimeClassName: plain, overhead: {cpu: 1}}",
                "pods \"p\" is forbidden: pod rejected: Pod Overhead set without corresponding \
                 RuntimeClass defined Overhead",
            ),
            ("{runtimeClassName: heavy, overhead: {cpu: 100m, memory: 1Gi}}", ""),
            (
                "{runtimeClassName: heavy}",
                "pods \"p\" is forbidden: pod rejected: Pod's Overhead doesn't match RuntimeClass's \
                 defined Overhead",
            ),
        ];
        let classes = CLASSES.map(|class| (&resources::RUNTIME_CLASSES, class));
        for (spec, expected) in cases {
            let pod = yaml(&format!("{{metadata: {{name: p}}, spec: {spec}}}"));
            let outcome =
                create(&resources::PODS).validate(&RuntimeClass, &pod, &cluster(&classes, &[]));
            assert_eq!(outcome.message(), expected, "{spec}");
        }
    }
}
