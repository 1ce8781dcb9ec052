//! The networking group: ingresses, network policies, service addresses.

use meta::{
    FieldErrors, Value,
    field::RuleId,
    names::{
        is_dns1123_label, is_dns1123_subdomain, is_port_name, is_port_number,
        is_wildcard_dns1123_subdomain, name_is_path_segment, validate_label_selector,
    },
};

use super::{
    cursor::{Field, IMMUTABLE},
    ip::{canonical_cidr, legacy_cidr, legacy_ip, parse_cidr, parse_sloppy},
    names::domain_prefixed_path,
    ratcheting::ratchet,
};

pub(crate) fn ingress(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    ingress_spec(&spec, errors);
    let note = root.value_at(&["metadata", "annotations", CLASS_ANNOTATION]);
    let class = spec.value_at(&["ingressClassName"]);
    if note.is_some() && class.is_some() && note != class {
        let annotations = root.get("annotations");
        let why = "must match `ingressClassName` when both are specified";
        annotations.get(CLASS_ANNOTATION).with(note).invalid(errors, why);
    }
}

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

pub(crate) fn ingress_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    ingress_spec(&root.get("spec"), errors);
    ratchet(old, ingress, errors);
    if object.get("status") == old.get("status") {
        return;
    }
    let before: Vec<&str> = old
        .items_at(&["status", "loadBalancer", "ingress"])
        .iter()
        .map(|point| point.str_at(&["ip"]))
        .collect();
    let status = root.get("status");
    let balancer = status.get("loadBalancer");
    for point in balancer.get("ingress").items() {
        if !point.get("ip").is_empty() {
            legacy_ip(&point.get("ip"), &before, errors);
        }
        let host = point.get("hostname");
        host.rule_if_filled(errors, is_dns1123_subdomain);
        if parse_sloppy(host.str()).is_some() {
            host.invalid(errors, NOT_AN_IP);
        }
    }
}

const NOT_AN_IP: &str = "must be a DNS name, not an IP address";

fn ingress_spec(spec: &Field<'_>, errors: &mut FieldErrors) {
    let (rules, default) = (spec.get("rules"), spec.get("defaultBackend"));
    if rules.is_empty() && !default.is_set() {
        let why = "either `defaultBackend` or `rules` must be specified";
        spec.with(rules.value()).invalid(errors, why);
    }
    if default.is_set() {
        backend(&default, errors);
    }
    for rule in rules.items() {
        let name = rule.get("host");
        if parse_sloppy(name.str()).is_some() {
            name.invalid(errors, NOT_AN_IP);
        }
        host(&name, errors);
        let http = rule.get("http");
        if !http.is_set() {
            continue;
        }
        http.get("paths").require(errors);
        for path in http.get("paths").items() {
            ingress_path(&path, errors);
        }
    }
    for tls in spec.get("tls").items() {
        for name in tls.get("hosts").items() {
            if name.is_empty() {
                name.rule(errors, is_dns1123_subdomain);
            }
            host(&name, errors);
        }
        errors.with_rule(TLS_SECRET_NAME, |errors| {
            tls.get("secretName").rule_if_filled(errors, is_dns1123_subdomain);
        });
    }
    if spec.get("ingressClassName").is_set() {
        spec.get("ingressClassName").rule(errors, is_dns1123_subdomain);
    }
}

/// The secrets of an ingress have names that a secret can have.
pub(crate) const TLS_SECRET_NAME: RuleId = RuleId::new("ingress TLS secret name");

fn host(name: &Field<'_>, errors: &mut FieldErrors) {
    if name.str().contains('*') {
        name.rule(errors, is_wildcard_dns1123_subdomain);
    } else {
        name.rule_if_filled(errors, is_dns1123_subdomain);
    }
}

fn ingress_path(path: &Field<'_>, errors: &mut FieldErrors) {
    let (text, kind) = (path.get("path"), path.get("pathType"));
    if !kind.is_set() {
        return kind.required(errors, "pathType must be specified");
    }
    let is_absolute = text.str().starts_with('/');
    match kind.str() {
        "Exact" | "Prefix" => {
            if !is_absolute {
                text.invalid_value(errors, text.str(), "must be an absolute path");
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"] {
                if text.str().contains(part) {
                    text.invalid(errors, &format!("must not contain '{part}'"));
                }
            }
            for end in ["/..", "/."] {
                if text.str().ends_with(end) {
                    text.invalid(errors, &format!("cannot end with '{end}'"));
                }
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !is_absolute {
                text.invalid(errors, "must be an absolute path");
            }
        }
        _ => kind.not_supported(errors, &["Exact", "ImplementationSpecific", "Prefix"]),
    }
    backend(&path.get("backend"), errors);
}

fn backend(backend: &Field<'_>, errors: &mut FieldErrors) {
    let (resource, service) = (backend.get("resource"), backend.get("service"));
    match (resource.is_set(), service.is_set()) {
        (true, true) => {
            backend.invalid_value(errors, "", "cannot set both resource and service backends");
        }
        (true, false) => typed_reference(&resource, errors),
        (false, true) => {
            service.get("name").require_rule(errors, is_dns1123_label);
            let port = service.get("port");
            let (name, number) = (port.get("name"), port.get("number"));
            match (!name.is_empty(), number.int_or_zero() != 0) {
                (true, true) => {
                    backend.invalid_value(errors, "", "cannot set both port name & port number");
                }
                (true, false) => name.rule(errors, is_port_name),
                (false, true) => number.int_rule(errors, is_port_number),
                (false, false) => backend.required(errors, "port name or number is required"),
            }
        }
        (false, false) => {
            backend.invalid_value(errors, "", "resource or service backend is required");
        }
    }
}

fn is_path_segment(text: &str) -> Vec<String> {
    name_is_path_segment(text, false)
}

fn typed_reference(reference: &Field<'_>, errors: &mut FieldErrors) {
    if reference.get("apiGroup").is_set() {
        reference.get("apiGroup").rule(errors, is_dns1123_subdomain);
    }
    reference.get("kind").require_rule(errors, is_path_segment);
    reference.get("name").require_rule(errors, is_path_segment);
}

pub(crate) fn ingress_class(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let controller = spec.get("controller");
    if controller.len() > 250 {
        errors.too_long(controller.path(), 250);
    }
    domain_prefixed_path(&controller, errors);
    let parameters = spec.get("parameters");
    if !parameters.is_set() {
        return;
    }
    typed_reference(&parameters, errors);
    let (scope, namespace) = (parameters.get("scope"), parameters.get("namespace"));
    match scope.str() {
        "Namespace" if !namespace.is_set() => {
            namespace.required(errors, "`parameters.scope` is set to 'Namespace'");
        }
        "Namespace" => namespace.rule(errors, is_dns1123_label),
        "Cluster" if namespace.is_set() => {
            namespace.forbidden(errors, "`parameters.scope` is set to 'Cluster'");
        }
        "Cluster" => {}
        _ => scope.not_supported(errors, &["Cluster", "Namespace"]),
    }
}

pub(crate) fn ingress_class_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (root, old) = (Field::root(object), Field::root(old));
    let (spec, before) = (root.get("spec"), old.get("spec"));
    let controller = spec.get("controller");
    if !controller.is(before.str_at(&["controller"])) {
        controller.invalid_value(errors, controller.str(), IMMUTABLE);
    }
    ingress_class(object, errors);
}

pub(crate) fn network_policy(object: &Value, errors: &mut FieldErrors) {
    policy_spec(&Field::root(object).get("spec"), &[], errors);
}

pub(crate) fn network_policy_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let mut before = Vec::new();
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        let rules = old.items_at(&["spec", rules]).iter();
        for block in rules.flat_map(|rule| rule.items_at(&[peers])).filter_map(|p| p.get("ipBlock"))
        {
            before.push(block.str_at(&["cidr"]));
            before.extend(block.items_at(&["except"]).iter().filter_map(Value::as_str));
        }
    }
    policy_spec(&Field::root(object).get("spec"), &before, errors);
}

fn policy_spec(spec: &Field<'_>, old_ranges: &[&str], errors: &mut FieldErrors) {
    let selector = spec.get("podSelector");
    validate_label_selector(selector.value(), &selector.path(), errors);
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.get(rules).items() {
            for port in rule.get("ports").items() {
                policy_port(&port, errors);
            }
            for peer in rule.get(peers).items() {
                policy_peer(&peer, old_ranges, errors);
            }
        }
    }
    let types = spec.get("policyTypes");
    if types.len() > 2 {
        return types.invalid(errors, "may not specify more than two policyTypes");
    }
    for kind in types.items() {
        kind.one_of(errors, &["Ingress", "Egress"]);
    }
}

fn policy_port(port: &Field<'_>, errors: &mut FieldErrors) {
    port.get("protocol").one_of(errors, &["TCP", "UDP", "SCTP"]);
    let (number, end) = (port.get("port"), port.get("endPort"));
    match number.value() {
        Some(Value::String(_)) => {
            if end.is_set() {
                end.invalid(errors, "may not be specified when `port` is non-numeric");
            }
            number.rule(errors, is_port_name);
        }
        Some(_) => {
            number.int_rule(errors, is_port_number);
            if let Some(last) = end.int() {
                if last < number.int_or_zero() {
                    let why = "must be greater than or equal to `port`";
                    end.invalid_value(errors, number.int_or_zero(), why);
                }
                end.int_rule(errors, is_port_number);
            }
        }
        None => {
            if end.is_set() {
                end.invalid(errors, "may not be specified when `port` is not specified");
            }
        }
    }
}

fn policy_peer(peer: &Field<'_>, old_ranges: &[&str], errors: &mut FieldErrors) {
    let mut found = 0;
    for name in ["podSelector", "namespaceSelector"] {
        let selector = peer.get(name);
        if selector.is_set() {
            found += 1;
            validate_label_selector(selector.value(), &selector.path(), errors);
        }
    }
    let block = peer.get("ipBlock");
    if block.is_set() {
        ip_block(&block, old_ranges, errors);
        if found > 0 {
            peer.forbidden(errors, "may not specify both ipBlock and another peer");
        }
    } else if found == 0 {
        peer.required(errors, "must specify a peer");
    }
}

fn ip_block(block: &Field<'_>, old_ranges: &[&str], errors: &mut FieldErrors) {
    let range = block.get("cidr");
    if !range.require(errors) {
        return;
    }
    legacy_cidr(&range, old_ranges, errors);
    let Some(whole) = parse_cidr(range.str()) else { return };
    for except in block.get("except").items() {
        legacy_cidr(&except, old_ranges, errors);
        let Some(part) = parse_cidr(except.str()) else { continue };
        if !whole.contains(part.network()) || whole.bits >= part.bits {
            except.invalid(errors, "must be a strict subset of `cidr`");
        }
    }
}

pub(crate) fn ip_address(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let parent = spec.get("parentRef");
    if !parent.is_set() {
        return parent.required(errors, "");
    }
    parent.get("group").rule_if_filled(errors, is_dns1123_subdomain);
    parent.get("resource").require_rule(errors, is_path_segment);
    parent.get("name").require_rule(errors, is_path_segment);
    parent.get("namespace").rule_if_filled(errors, is_path_segment);
}

pub(crate) fn ip_address_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (root, old) = (Field::root(object), Field::root(old));
    let (spec, before) = (root.get("spec"), old.get("spec"));
    let parent = spec.get("parentRef");
    if !parent.is_set() {
        parent.required(errors, "");
        parent.invalid(errors, IMMUTABLE);
    } else if parent.value() != before.get("parentRef").value() {
        let part = |name: &str| meta::json::to_string(&parent.str_at(&[name]).into());
        let shown = format!(
            r#"{{"Group":{},"Resource":{},"Namespace":{},"Name":{}}}"#,
            part("group"),
            part("resource"),
            part("namespace"),
            part("name")
        );
        parent.invalid_shown(errors, &shown, IMMUTABLE);
    }
}

pub(crate) fn service_cidr(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    service_ranges(&spec.get("cidrs"), errors);
}

fn service_ranges(ranges: &Field<'_>, errors: &mut FieldErrors) {
    if ranges.is_empty() {
        return ranges.required(errors, "at least one CIDR required");
    }
    if ranges.len() > 2 {
        let shown = ranges.value().map(meta::json::to_string).unwrap_or_default();
        let shown = format!(r#"{{"CIDRs":{shown}}}"#);
        return ranges.invalid_shown(errors, &shown, "may only hold up to 2 values");
    }
    for range in ranges.items() {
        canonical_cidr(&range, errors);
    }
    let families: Vec<bool> = ranges
        .items()
        .filter_map(|range| parse_cidr(range.str()))
        .map(|range| range.address.is_ipv4())
        .collect();
    if families.len() == 2 && families[0] == families[1] {
        let why = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and \
                   2001:db8::/64";
        ranges.invalid(errors, why);
    }
}

pub(crate) fn service_cidr_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let ranges = spec.get("cidrs");
    let before = old.items_at(&["spec", "cidrs"]);
    match (before.len(), ranges.len()) {
        (old, new) if old == new || (old == 1 && new == 2) => {
            for (range, before) in ranges.items().zip(before) {
                if range.value() != Some(before) {
                    range.invalid(errors, IMMUTABLE);
                }
            }
            if old != new {
                service_ranges(&ranges, errors);
            }
        }
        _ => ranges.invalid(errors, IMMUTABLE),
    }
}
