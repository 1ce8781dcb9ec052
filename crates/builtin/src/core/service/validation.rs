//! Services. Their addresses and node ports are checked where they are given out.

use std::collections::BTreeSet;

use meta::{
    FieldErrors, Value,
    names::{
        is_dns1123_label, is_dns1123_subdomain, is_port_number, is_qualified_name, validate_labels,
    },
};

use crate::validation::{
    cursor::Field,
    endpoints::endpoint_ip,
    ip::{legacy_cidr, legacy_ip, parse_sloppy},
    pod_spec::port,
};

pub(crate) fn validate(service: &Value, errors: &mut FieldErrors) {
    service_rules(&Field::root(service), None, errors);
}

pub(crate) fn validate_update(service: &Value, old: &Value, errors: &mut FieldErrors) {
    let (root, old_root) = (Field::root(service), Field::root(old));
    let (spec, before) = (root.get("spec"), old_root.get("spec"));
    let class = spec.get("loadBalancerClass");
    if spec.get("type").is("LoadBalancer")
        && before.get("type").is("LoadBalancer")
        && class.value() != before.get("loadBalancerClass").value()
    {
        class.invalid(errors, "may not change once set");
    }
    // Compat: checked twice in an update.
    load_balancer_class(&spec, errors);
    let check = spec.get("healthCheckNodePort");
    if needs_health_check(&spec)
        && needs_health_check(&before)
        && check.int_or_zero() != before.get("healthCheckNodePort").int_or_zero()
    {
        check.forbidden(errors, "field is immutable");
    }
    service_rules(&root, Some(&old_root), errors);
    if service.get("status") != old.get("status") {
        let status = root.get("status");
        let kind = root.str_at(&["spec", "type"]);
        load_balancer_status(&status.get("loadBalancer"), kind, &old_root, errors);
    }
}

fn service_rules(service: &Field<'_>, old: Option<&Field<'_>>, errors: &mut FieldErrors) {
    let spec = service.get("spec");
    let is_headless = is_headless(&spec);
    let kind = spec.get("type");
    let ports = spec.get("ports");
    topology_annotations(service, errors);
    if ports.is_empty() && !is_headless && !kind.is("ExternalName") {
        ports.required(errors, "");
    }
    match kind.str() {
        kind @ ("LoadBalancer" | "NodePort") if is_headless => {
            let why = format!("may not be set to 'None' for {kind} services");
            spec.get("clusterIPs").index(0).invalid_value(errors, "None", &why);
        }
        "ExternalName" => external_name(&spec, errors),
        _ => {}
    }
    let mut names = BTreeSet::new();
    for port in ports.items() {
        service_port(&port, ports.len() > 1, &mut names, errors);
    }
    let selector = spec.get("selector");
    validate_labels(selector.value(), &selector.path(), errors);
    session_affinity(&spec, errors);
    let before = texts(old, &["spec", "externalIPs"]);
    for ip in spec.get("externalIPs").items() {
        let count = errors.count();
        legacy_ip(&ip, &before, errors);
        if errors.count() == count {
            endpoint_ip(&ip, errors);
        }
    }
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    kind.one_of_or_default(errors, &kinds);
    unique_ports(&spec, errors);
    source_ranges(service, old, errors);
    if spec.get("allocateLoadBalancerNodePorts").is_set() && !kind.is("LoadBalancer") {
        spec.get("allocateLoadBalancerNodePorts").forbidden(errors, ONLY_LOAD_BALANCER);
    }
    load_balancer_class(&spec, errors);
    traffic(&spec, errors);
}

fn load_balancer_class(spec: &Field<'_>, errors: &mut FieldErrors) {
    let class = spec.get("loadBalancerClass");
    if class.is_set() {
        if spec.get("type").is("LoadBalancer") {
            class.rule(errors, is_qualified_name);
        } else {
            class.forbidden(errors, ONLY_LOAD_BALANCER);
        }
    }
}

const ONLY_LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";

fn texts<'a>(object: Option<&Field<'a>>, path: &[&str]) -> Vec<&'a str> {
    let items = object.and_then(|object| object.value_at(path)).and_then(Value::as_array);
    items.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn is_headless(spec: &Field<'_>) -> bool {
    let ips = texts(Some(spec), &["clusterIPs"]);
    ips == ["None"] || ips.is_empty() && spec.str_at(&["clusterIP"]) == "None"
}

fn topology_annotations(service: &Field<'_>, errors: &mut FieldErrors) {
    let metadata = service.get("metadata");
    let annotations = metadata.get("annotations");
    let hints = annotations.key("service.kubernetes.io/topology-aware-hints");
    let mode = annotations.key("service.kubernetes.io/topology-mode");
    if mode.is_set() && hints.is_set() && mode.str() != hints.str() {
        let why = "must match annotations[service.kubernetes.io/topology-aware-hints] when both \
                   are specified";
        mode.invalid(errors, why);
    }
}

fn external_name(spec: &Field<'_>, errors: &mut FieldErrors) {
    let why = "may not be set for ExternalName services";
    for name in ["clusterIPs", "ipFamilies"] {
        if !spec.get(name).is_empty() {
            spec.get(name).forbidden(errors, why);
        }
    }
    if spec.get("ipFamilyPolicy").is_set() {
        spec.get("ipFamilyPolicy").forbidden(errors, why);
    }
    let name = spec.get("externalName");
    let host = name.str().strip_suffix('.').unwrap_or(name.str());
    if host.is_empty() {
        return name.required(errors, "");
    }
    for why in is_dns1123_subdomain(host) {
        name.invalid_value(errors, host, &why);
    }
}

fn service_port<'a>(
    service_port: &Field<'a>,
    requires_name: bool,
    names: &mut BTreeSet<&'a str>,
    errors: &mut FieldErrors,
) {
    let text = service_port.str_at(&["name"]);
    let name = service_port.get("name");
    if !text.is_empty() {
        name.rule(errors, is_dns1123_label);
        if !names.insert(text) {
            name.duplicate(errors);
        }
    } else if requires_name {
        name.required(errors, "");
    }
    service_port.get("port").int_rule(errors, is_port_number);
    service_port.get("protocol").one_of_or_default(errors, &["SCTP", "TCP", "UDP"]);
    // Left out, it is the port itself.
    let target = service_port.get("targetPort");
    if target.is_set() {
        port(&target, errors);
    }
    if service_port.get("appProtocol").is_set() {
        service_port.get("appProtocol").rule(errors, is_qualified_name);
    }
}

fn session_affinity(spec: &Field<'_>, errors: &mut FieldErrors) {
    let (affinity, config) = (spec.get("sessionAffinity"), spec.get("sessionAffinityConfig"));
    affinity.one_of_or_default(errors, &["ClientIP", "None"]);
    if affinity.is("ClientIP") {
        let seconds = config.get("clientIP");
        let seconds = seconds.get("timeoutSeconds");
        if seconds.is_set() && !(1..=86_400).contains(&seconds.int_or_zero()) {
            seconds.invalid(errors, "must be greater than 0 and less than 86400");
        }
    } else if affinity.is("None") && config.is_set() {
        config.forbidden(errors, "must not be set when session affinity is None");
    }
}

fn unique_ports(spec: &Field<'_>, errors: &mut FieldErrors) {
    let ports = spec.get("ports");
    if spec.get("type").is("ClusterIP") {
        for port in ports.items() {
            if port.get("nodePort").int_or_zero() != 0 {
                let why = "may not be used when `type` is 'ClusterIP'";
                port.get("nodePort").forbidden(errors, why);
            }
        }
    }
    let mut seen = BTreeSet::new();
    for port in ports.items() {
        let number = port.get("nodePort");
        let key = (port.str_at(&["protocol"]), number.int_or_zero());
        if key.1 != 0 && !seen.insert(key) {
            number.duplicate(errors);
        }
    }
    let mut seen = BTreeSet::new();
    for port in ports.items() {
        let (protocol, number) = (port.str_at(&["protocol"]), port.get("port").int_or_zero());
        if !seen.insert((protocol, number)) {
            let message = format!(
                "Duplicate value: {{\"Name\":\"\",\"Protocol\":\"{protocol}\",\"AppProtocol\":null,\
                 \"Port\":{number},\"TargetPort\":0,\"NodePort\":0}}"
            );
            errors.push(meta::field::FieldReason::Duplicate, port.path(), message);
        }
    }
}

fn source_ranges(service: &Field<'_>, old: Option<&Field<'_>>, errors: &mut FieldErrors) {
    let spec = service.get("spec");
    let is_balanced = spec.get("type").is("LoadBalancer");
    let ranges = spec.get("LoadBalancerSourceRanges");
    let ranges = ranges.with(spec.value_at(&["loadBalancerSourceRanges"]));
    if !ranges.is_empty() {
        if !is_balanced {
            ranges.forbidden(errors, ONLY_LOAD_BALANCER);
        }
        let before = texts(old, &["spec", "loadBalancerSourceRanges"]);
        let before: Vec<&str> = before.iter().map(|range| range.trim()).collect();
        for range in ranges.items() {
            let trimmed = Value::from(range.str().trim());
            legacy_cidr(&range.with(Some(&trimmed)), &before, errors);
        }
        return;
    }
    let metadata = service.get("metadata");
    let annotations = metadata.get("annotations");
    let note = annotations.key(SOURCE_RANGES);
    if !note.is_set() {
        return;
    }
    if !is_balanced {
        note.forbidden(errors, ONLY_LOAD_BALANCER);
    }
    let before = old.and_then(|old| old.value_at(&["metadata", "annotations", SOURCE_RANGES]));
    if before != note.value() && !note.str().trim().is_empty() {
        for range in note.str().split(',') {
            let range = Value::from(range.trim());
            legacy_cidr(&note.with(Some(&range)), &[], errors);
        }
    }
}

const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

fn needs_health_check(spec: &Field<'_>) -> bool {
    spec.get("type").is("LoadBalancer") && spec.get("externalTrafficPolicy").is("Local")
}

fn traffic(spec: &Field<'_>, errors: &mut FieldErrors) {
    let policy = spec.get("externalTrafficPolicy");
    let is_accessible = matches!(spec.str_at(&["type"]), "LoadBalancer" | "NodePort")
        || spec.get("type").is("ClusterIP") && !spec.get("externalIPs").is_empty();
    if is_accessible {
        policy.one_of_or_default(errors, &["Cluster", "Local"]);
    } else if !policy.is_empty() {
        policy.invalid(errors, "may only be set for externally-accessible services");
    }
    let check = spec.get("healthCheckNodePort");
    if check.int_or_zero() != 0 {
        if needs_health_check(spec) {
            check.int_rule(errors, is_port_number);
        } else {
            let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` \
                       is 'Local'";
            check.invalid(errors, why);
        }
    }
    spec.get("internalTrafficPolicy").one_of(errors, &["Cluster", "Local"]);
    let ways = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    spec.get("trafficDistribution").one_of(errors, &ways);
}

fn load_balancer_status(status: &Field<'_>, kind: &str, old: &Field<'_>, errors: &mut FieldErrors) {
    let ingresses = status.get("ingress");
    if kind != "LoadBalancer" && !ingresses.is_empty() {
        let why = "may only be used when `spec.type` is 'LoadBalancer'";
        return ingresses.forbidden(errors, why);
    }
    let before: Vec<&str> = old
        .value_at(&["status", "loadBalancer", "ingress"])
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|ingress| ingress.str_at(&["ip"]))
        .filter(|ip| !ip.is_empty())
        .collect();
    for ingress in ingresses.items() {
        let (ip, mode, host) = (ingress.get("ip"), ingress.get("ipMode"), ingress.get("hostname"));
        if !ip.is_empty() {
            legacy_ip(&ip, &before, errors);
        }
        if mode.is_set() {
            if ip.is_empty() {
                mode.forbidden(errors, "may not be specified when `ip` is not set");
            } else {
                mode.one_of(errors, &["Proxy", "VIP"]);
            }
        }
        if !host.is_empty() {
            host.rule(errors, is_dns1123_subdomain);
            if parse_sloppy(host.str()).is_some() {
                host.invalid(errors, "must be a DNS name, not an IP address");
            }
        }
    }
}
