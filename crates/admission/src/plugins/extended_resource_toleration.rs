//! Nodes with special hardware are tainted with its name: pods that request it tolerate that.

use std::collections::BTreeSet;

use meta::{ApiError, Value, names::is_qualified_name, value};

use crate::{Attributes, BoxFuture, Cluster, Operation, Phases, Plugin};

pub struct ExtendedResourceToleration;

impl Plugin for ExtendedResourceToleration {
    fn name(&self) -> &'static str {
        "ExtendedResourceToleration"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is_pod()
    }

    fn phases(&self) -> Phases {
        Phases::Mutating
    }

    fn admit<'a>(
        &'a self,
        _attributes: &'a Attributes<'a>,
        object: Option<&'a mut Value>,
        _cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        if let Some(pod) = object {
            tolerate(pod);
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

fn tolerate(pod: &mut Value) {
    let mut names = BTreeSet::new();
    for list in ["containers", "initContainers"] {
        for container in pod.items_at(&["spec", list]) {
            let requests = container.at(&["resources", "requests"]).and_then(Value::as_object);
            let requests = requests.into_iter().flat_map(meta::Map::keys);
            names.extend(requests.filter(|name| is_extended(name)).cloned());
        }
    }
    if names.is_empty() {
        return;
    }
    let mut tolerations = pod.items_at(&["spec", "tolerations"]).to_vec();
    for name in names {
        let wanted = value!({"key": (name.as_str()), "operator": "Exists", "effect": "NoSchedule"});
        let is_same = |other: &Value| {
            ["key", "operator", "value", "effect"]
                .iter()
                .all(|field| other.str_at(&[field]) == wanted.str_at(&[field]))
        };
        let mut found = false;
        for toleration in tolerations.iter_mut().filter(|toleration| is_same(toleration)) {
            toleration.clone_from(&wanted);
            found = true;
        }
        if !found {
            tolerations.push(wanted);
        }
    }
    pod.set_at(&["spec", "tolerations"], tolerations);
}

/// Whether a resource is not one of Kubernetes' own.
fn is_extended(name: &str) -> bool {
    name.contains('/')
        && !name.contains("kubernetes.io/")
        && !name.starts_with("requests.")
        && is_qualified_name(&format!("requests.{name}")).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        harness::{cluster, create, yaml},
        resources,
    };

    #[test]
    fn pods_tolerate_the_hardware_that_they_request() {
        let cases = [
            ("cpu: 1", "", ""),
            ("a.kubernetes.io/x: 1, requests.example.com/y: 1, 'bad name/x': 1", "", ""),
            (
                "example.com/b: 1, example.com/a: 1",
                "{key: k}",
                "{key: k}, {key: example.com/a, operator: Exists, effect: NoSchedule}, {key: example.com/b, operator: Exists, effect: NoSchedule}",
            ),
            (
                "example.com/a: 1",
                "{key: example.com/a, operator: Exists, effect: NoSchedule, tolerationSeconds: 1}",
                "{key: example.com/a, operator: Exists, effect: NoSchedule}",
            ),
        ];
        for (requests, tolerations, expected) in cases {
            for list in ["containers", "initContainers"] {
                let pod = |tolerations: &str| {
                    yaml(&format!(
                        "{{spec: {{{list}: [{{resources: {{requests: {{{requests}}}}}}}], \
                         tolerations: [{tolerations}]}}}}"
                    ))
                };
                let mut object = pod(tolerations);
                create(&resources::PODS).admit(
                    &ExtendedResourceToleration,
                    &mut object,
                    &cluster(&[], &[]),
                );
                assert_eq!(object, pod(expected));
            }
        }
    }
}
