//! Validation of network policies.

use meta::{
    FieldErrors, Value,
    names::{is_port_name, is_port_number, validate_label_selector},
};

use crate::validation::{
    cursor::Field,
    ip::{legacy_cidr, parse_cidr},
};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    policy_spec(&Field::root(object).get("spec"), &[], errors);
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
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
