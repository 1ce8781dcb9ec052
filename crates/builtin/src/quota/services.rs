//! Services: their number, node ports and load balancers.

use admission::{
    Operation,
    quota::{Evaluator, ResourceList},
};
use meta::Value;

use super::count;

pub(super) struct Services;

const NAMES: [&str; 4] =
    ["count/services", "services", "services.nodeports", "services.loadbalancers"];

impl Evaluator for Services {
    /// The type of a service can change.
    fn handles(
        &self,
        operation: Operation,
        subresource: &str,
        _: &Value,
        _: Option<&Value>,
    ) -> bool {
        subresource.is_empty() && matches!(operation, Operation::Create | Operation::Update)
    }

    fn measures(&self, name: &str) -> bool {
        NAMES.contains(&name)
    }

    fn usage(&self, service: &Value) -> ResourceList {
        let ports = service.items_at(&["spec", "ports"]);
        let all = ports.len() as i64;
        // Node ports are not allocated yet: what counts is what is asked for.
        let (node_ports, load_balancers) = match service.str_at(&["spec", "type"]) {
            "NodePort" => (all, 0),
            "LoadBalancer" => {
                let allocates = service.at(&["spec", "allocateLoadBalancerNodePorts"]);
                let explicit = || {
                    let node_port = |port: &&Value| {
                        port.get("nodePort").and_then(Value::as_i64).is_some_and(|port| port != 0)
                    };
                    ports.iter().filter(node_port).count() as i64
                };
                let is_off = allocates.and_then(Value::as_bool) == Some(false);
                (if is_off { explicit() } else { all }, 1)
            }
            _ => (0, 0),
        };
        let [counted, services, node_port_name, load_balancer_name] = NAMES;
        [
            (counted.into(), count(1)),
            (services.into(), count(1)),
            (node_port_name.into(), count(node_ports)),
            (load_balancer_name.into(), count(load_balancers)),
        ]
        .into_iter()
        .collect()
    }
}
