//! What a service needs by its type, and what it drops when its type changes.

use meta::Value;

/// Addresses of the cluster, as all but aliases have.
pub(crate) fn needs_cluster_ip(service: &Value) -> bool {
    service.str_at(&["spec", "type"]) != "ExternalName"
}

/// Whether ports on the nodes are allocated for it.
pub(crate) fn needs_node_ports(service: &Value) -> bool {
    match service.str_at(&["spec", "type"]) {
        "NodePort" => true,
        "LoadBalancer" => {
            let allocates = service.at(&["spec", "allocateLoadBalancerNodePorts"]);
            allocates.and_then(Value::as_bool).unwrap_or(true)
        }
        _ => false,
    }
}

/// Whether it may have ports on the nodes at all.
pub(crate) fn is_exposed(service: &Value) -> bool {
    matches!(service.str_at(&["spec", "type"]), "NodePort" | "LoadBalancer")
}

/// A port where a load balancer asks whether a node has endpoints.
pub(crate) fn needs_health_check_port(service: &Value) -> bool {
    is_load_balancer(service) && service.str_at(&["spec", "externalTrafficPolicy"]) == "Local"
}

fn is_load_balancer(service: &Value) -> bool {
    service.str_at(&["spec", "type"]) == "LoadBalancer"
}

fn needs_external_policy(service: &Value) -> bool {
    is_exposed(service)
        || (service.str_at(&["spec", "type"]) == "ClusterIP"
            && !service.items_at(&["spec", "externalIPs"]).is_empty())
}

pub(crate) fn node_ports(service: &Value) -> Vec<i64> {
    let ports = service.items_at(&["spec", "ports"]).iter();
    ports.filter_map(|port| port.i64_at(&["nodePort"])).filter(|port| *port != 0).collect()
}

type Needs = fn(&Value) -> bool;

/// Fields that only the old type had, and that the client did not touch, go with the old type.
pub(crate) fn drop_type_dependent_fields(service: &mut Value, old: &Value) {
    let untouched =
        |service: &Value, field: &str| service.at(&["spec", field]) == old.at(&["spec", field]);
    let lost = |service: &Value, needs: Needs| needs(old) && !needs(service);
    if lost(service, needs_cluster_ip) && untouched(service, "clusterIPs") {
        for field in ["clusterIP", "clusterIPs"] {
            service.remove_at(&["spec", field]);
        }
    }
    if lost(service, is_exposed) && node_ports(service) == node_ports(old) {
        let ports = service.at_mut(&["spec", "ports"]).and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten() {
            port.remove_at(&["nodePort"]);
        }
    }
    let fields: [(&str, Needs); 7] = [
        ("ipFamilies", needs_cluster_ip),
        ("ipFamilyPolicy", needs_cluster_ip),
        ("healthCheckNodePort", needs_health_check_port),
        ("allocateLoadBalancerNodePorts", is_load_balancer),
        ("loadBalancerClass", is_load_balancer),
        ("externalTrafficPolicy", needs_external_policy),
        ("internalTrafficPolicy", needs_cluster_ip),
    ];
    for (field, needs) in fields {
        if lost(service, needs) && untouched(service, field) {
            service.remove_at(&["spec", field]);
        }
    }
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn a_new_type_drops_what_only_the_old_one_had() {
        let old = value!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.1",
            "clusterIPs": ["10.0.0.1"], "externalTrafficPolicy": "Cluster",
            "ports": [{"port": 1i64, "nodePort": 30001i64}]}});
        let mut inner = old.clone();
        inner.set_at(&["spec", "type"], "ClusterIP");
        drop_type_dependent_fields(&mut inner, &old);
        assert_eq!(
            inner,
            value!({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1",
            "clusterIPs": ["10.0.0.1"], "ports": [{"port": 1i64}]}})
        );
        let mut away = old.clone();
        away.set_at(&["spec", "type"], "ExternalName");
        drop_type_dependent_fields(&mut away, &old);
        assert_eq!(away, value!({"spec": {"type": "ExternalName", "ports": [{"port": 1i64}]}}));
    }
}
