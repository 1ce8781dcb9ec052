//! A pod stays on a node that is not ready or cannot be reached for some time, unless it says how long.

use meta::{ApiError, Value, value};

use crate::{Attributes, BoxFuture, Cluster, Operation, Phases, Plugin};

pub struct DefaultTolerationSeconds {
    pub not_ready_seconds: i64,
    pub unreachable_seconds: i64,
}

impl Plugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
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
            tolerate(pod, "node.kubernetes.io/not-ready", self.not_ready_seconds);
            tolerate(pod, "node.kubernetes.io/unreachable", self.unreachable_seconds);
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

fn tolerate(pod: &mut Value, key: &str, seconds: i64) {
    let tolerates = |toleration: &Value| {
        let (of_key, effect) = (toleration.str_at(&["key"]), toleration.str_at(&["effect"]));
        (of_key == key || of_key.is_empty()) && matches!(effect, "NoExecute" | "")
    };
    let tolerations = pod.items_at(&["spec", "tolerations"]);
    if tolerations.iter().any(tolerates) {
        return;
    }
    let toleration = value!({
        "key": key,
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": seconds,
    });
    if let Some(tolerations) = pod.at_mut(&["spec", "tolerations"]).and_then(Value::as_array_mut) {
        tolerations.push(toleration);
    } else {
        pod.set_at(&["spec", "tolerations"], vec![toleration]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        harness::{cluster, create, update, yaml},
        resources,
    };

    #[test]
    fn pods_tolerate_lost_nodes_for_a_while() {
        let default = |what: &str, seconds: i64| {
            format!(
                "{{key: node.kubernetes.io/{what}, operator: Exists, effect: NoExecute, tolerationSeconds: {seconds}}}"
            )
        };
        let (not_ready, unreachable) = (default("not-ready", 300), default("unreachable", 400));
        let own = default("not-ready", 7);
        let other = "{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoSchedule}";
        let cases = [
            (String::new(), format!("{not_ready}, {unreachable}")),
            (own.clone(), format!("{own}, {unreachable}")),
            (other.to_owned(), format!("{other}, {not_ready}, {unreachable}")),
            ("{operator: Exists}".to_owned(), "{operator: Exists}".to_owned()),
            (
                "{operator: Exists, effect: NoSchedule}".to_owned(),
                format!("{{operator: Exists, effect: NoSchedule}}, {not_ready}, {unreachable}"),
            ),
        ];
        let plugin = DefaultTolerationSeconds { not_ready_seconds: 300, unreachable_seconds: 400 };
        let pod = |tolerations: &str| yaml(&format!("{{spec: {{tolerations: [{tolerations}]}}}}"));
        for (tolerations, expected) in cases {
            for request in [create(&resources::PODS), update(&resources::PODS, pod(""))] {
                let mut object = pod(&tolerations);
                request.admit(&plugin, &mut object, &cluster(&[], &[]));
                assert_eq!(object, pod(&expected));
            }
            let mut object = pod(&tolerations);
            let status = update(&resources::PODS, pod("")).subresource("status");
            status.admit(&plugin, &mut object, &cluster(&[], &[]));
            assert_eq!(object, pod(&tolerations));
        }
    }
}
