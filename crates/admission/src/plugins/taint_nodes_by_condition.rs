//! A new node is tainted as not ready until the node controller sees that it is: no pod is scheduled to
//! it in between.

use meta::{ApiError, Value, value};

use crate::{Attributes, BoxFuture, Cluster, Operation, Phases, Plugin};

pub struct TaintNodesByCondition;

const NOT_READY: &str = "node.kubernetes.io/not-ready";

impl Plugin for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is("", "nodes", "")
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
        if let Some(node) = object {
            taint(node);
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

fn taint(node: &mut Value) {
    let taints = node.items_at(&["spec", "taints"]);
    let is_tainted = |taint: &Value| {
        taint.str_at(&["key"]) == NOT_READY && taint.str_at(&["effect"]) == "NoSchedule"
    };
    if taints.iter().any(is_tainted) {
        return;
    }
    let mut taints = taints.to_vec();
    taints.push(value!({"key": NOT_READY, "effect": "NoSchedule"}));
    node.set_at(&["spec", "taints"], taints);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        harness::{cluster, create, update, yaml},
        resources,
    };

    #[test]
    fn new_nodes_are_tainted() {
        let tainted = "{key: node.kubernetes.io/not-ready, effect: NoSchedule}";
        let cases = [
            ("{}".to_owned(), format!("{{spec: {{taints: [{tainted}]}}}}")),
            (
                "{spec: {taints: [{key: a, effect: NoSchedule}]}}".to_owned(),
                format!("{{spec: {{taints: [{{key: a, effect: NoSchedule}}, {tainted}]}}}}"),
            ),
            (
                "{spec: {taints: [{key: node.kubernetes.io/not-ready, effect: NoExecute}]}}"
                    .to_owned(),
                format!(
                    "{{spec: {{taints: [{{key: node.kubernetes.io/not-ready, effect: NoExecute}}, {tainted}]}}}}"
                ),
            ),
            (
                format!("{{spec: {{taints: [{tainted}]}}}}"),
                format!("{{spec: {{taints: [{tainted}]}}}}"),
            ),
        ];
        let cluster = cluster(&[], &[]);
        for (node, expected) in cases {
            let mut object = yaml(&node);
            create(&resources::NODES).admit(&TaintNodesByCondition, &mut object, &cluster);
            assert_eq!(object, yaml(&expected));
            let mut object = yaml(&node);
            let request = update(&resources::NODES, object.clone());
            request.admit(&TaintNodesByCondition, &mut object, &cluster);
            assert_eq!(object, yaml(&node), "updates stay as they are");
        }
    }
}
