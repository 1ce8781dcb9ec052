//! Validation of endpoint slices.

use std::collections::BTreeSet;

use meta::{
    FieldErrors, Value,
    names::{is_dns1123_label, is_dns1123_subdomain, is_label_value, is_qualified_name},
};

use crate::validation::{
    cursor::Field,
    endpoints::endpoint_ip,
    ip::{canonical_ip, legacy_ip, parse_sloppy},
};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let kind = root.get("addressType");
    let kinds = ["FQDN", "IPv4", "IPv6"];
    if kind.is_empty() {
        kind.required(errors, "");
    } else {
        kind.one_of(errors, &kinds);
    }
    slice_ports(&root.get("ports"), errors);
    slice_endpoints(&root, errors);
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(object, errors);
    let kind = Field::root(object);
    kind.get("addressType").immutable(&Field::root(old).get("addressType"), errors);
}

fn slice_endpoints(slice: &Field<'_>, errors: &mut FieldErrors) {
    let (list, kind) = (slice.get("endpoints"), slice.str_at(&["addressType"]));
    if list.len() > 1000 {
        return errors.too_many(list.path(), list.len(), 1000);
    }
    for endpoint in list.items() {
        let addresses = endpoint.get("addresses");
        if addresses.is_empty() {
            addresses.required(errors, "must contain at least 1 address");
        } else if addresses.len() > 100 {
            errors.too_many(addresses.path(), addresses.len(), 100);
        }
        for address in addresses.items() {
            slice_address(&address, &addresses, kind, errors);
        }
        let node = endpoint.get("nodeName");
        if node.is_set() {
            node.rule(errors, is_dns1123_subdomain);
        }
        let topology = endpoint.get("deprecatedTopology");
        for (key, value) in topology.entries() {
            for why in is_qualified_name(key) {
                topology.invalid_value(errors, key, &why);
            }
            for why in is_label_value(value.str()) {
                value.invalid(errors, &why);
            }
        }
        if endpoint.get("hostname").is_set() {
            endpoint.get("hostname").rule(errors, is_dns1123_label);
        }
        hints(&endpoint.get("hints"), errors);
    }
}

fn slice_address(address: &Field<'_>, list: &Field<'_>, kind: &str, errors: &mut FieldErrors) {
    match kind {
        "IPv4" | "IPv6" => {
            let count = errors.count();
            if kind == "IPv4" {
                legacy_ip(address, &[], errors);
            } else {
                canonical_ip(address, errors);
            }
            if errors.count() > count {
                return;
            }
            if parse_sloppy(address.str()).is_some_and(|ip| ip.is_ipv4() != (kind == "IPv4")) {
                // Compat: upstream doesn't say which of the addresses it is about.
                list.invalid_value(errors, address.str(), &format!("must be an {kind} address"));
            }
            endpoint_ip(address, errors);
        }
        "FQDN" => {
            for why in is_dns1123_subdomain(address.str()) {
                address.invalid(errors, &why);
            }
        }
        _ => {}
    }
}

fn hints(hints: &Field<'_>, errors: &mut FieldErrors) {
    for (list, max) in [("forZones", 8), ("forNodes", 8)] {
        let entries = hints.get(list);
        if entries.len() > max {
            errors.too_many(entries.path(), entries.len(), max);
            continue;
        }
        let mut seen = BTreeSet::new();
        for entry in entries.items() {
            let name = entry.get("name");
            if !seen.insert(name.str().to_owned()) {
                name.duplicate(errors);
            }
            if list == "forZones" {
                name.rule(errors, is_label_value);
            } else {
                name.rule(errors, is_dns1123_subdomain);
            }
        }
    }
}

fn slice_ports(ports: &Field<'_>, errors: &mut FieldErrors) {
    if ports.len() > 20_000 {
        return errors.too_many(ports.path(), ports.len(), 20_000);
    }
    let mut names = BTreeSet::new();
    for port in ports.items() {
        let name = port.get("name");
        name.rule_if_filled(errors, is_dns1123_label);
        if !names.insert(name.str().to_owned()) {
            errors.duplicate(name.path(), name.str());
        }
        port.get("protocol").one_of(errors, &["SCTP", "TCP", "UDP"]);
        if port.get("appProtocol").is_set() {
            port.get("appProtocol").rule(errors, is_qualified_name);
        }
    }
}
