//! The defaults of services, but for what is allocated.

use meta::{Map, Value};

use crate::defaulting::{SetDefault, is_empty};

pub(super) fn default_service(service: &mut Map) {
    let spec = service.part("spec");
    spec.set_default_if_empty("type", "ClusterIP");
    default_session_affinity(spec);
    spec.each("ports").for_each(default_port);
    default_traffic_policies(spec);
    if is_of_type(spec, &["LoadBalancer"]) {
        spec.set_default("allocateLoadBalancerNodePorts", true);
        default_ip_modes(service);
    }
}

fn is_of_type(spec: &Map, types: &[&str]) -> bool {
    spec.get("type").and_then(Value::as_str).is_some_and(|own| types.contains(&own))
}

/// Whether and for how long a client stays with the same endpoint.
fn default_session_affinity(spec: &mut Map) {
    spec.set_default_if_empty("sessionAffinity", "None");
    match spec.get("sessionAffinity").and_then(Value::as_str) {
        Some("None") => drop(spec.remove("sessionAffinityConfig")),
        Some("ClientIP") => {
            let config = spec.part("sessionAffinityConfig").part("clientIP");
            config.set_default("timeoutSeconds", AFFINITY_SECONDS);
        }
        _ => {}
    }
}

/// Three hours.
const AFFINITY_SECONDS: i64 = 10_800;

/// Where nothing else is said, the port of the service is that of its pods.
fn default_port(port: &mut Map) {
    port.set_default_if_empty("protocol", "TCP");
    let number = port.get("port").cloned().unwrap_or(Value::from(0i64));
    port.set_default_if_empty("targetPort", number);
}

/// Clients reach the endpoints on all nodes.
fn default_traffic_policies(spec: &mut Map) {
    let has_external_ips =
        spec.get("externalIPs").and_then(Value::as_array).is_some_and(|ips| !ips.is_empty());
    let is_external = is_of_type(spec, &["NodePort", "LoadBalancer"])
        || (is_of_type(spec, &["ClusterIP"]) && has_external_ips);
    if is_external {
        spec.set_default_if_empty("externalTrafficPolicy", "Cluster");
    }
    if is_of_type(spec, &["ClusterIP", "NodePort", "LoadBalancer"]) {
        spec.set_default("internalTrafficPolicy", "Cluster");
    }
}

/// Traffic to the address of a load balancer arrives with that address as its destination.
fn default_ip_modes(service: &mut Map) {
    let Some(balancer) = service.given("status").and_then(|status| status.given("loadBalancer"))
    else {
        return;
    };
    for ingress in balancer.each("ingress") {
        if ingress.get("ip").is_some_and(|ip| !is_empty(ip)) {
            ingress.set_default("ipMode", "VIP");
        }
    }
}
