//! Validation of endpoints.

use meta::{
    FieldErrors, Value,
    names::{is_dns1123_label, is_dns1123_subdomain, is_port_number, is_qualified_name},
};

use crate::validation::{cursor::Field, endpoints::endpoint_ip, ip::legacy_ip};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    for subset in Field::root(object).get("subsets").items() {
        let (ready, not_ready) = (subset.get("addresses"), subset.get("notReadyAddresses"));
        if ready.is_empty() && not_ready.is_empty() {
            subset.required(errors, "must specify `addresses` or `notReadyAddresses`");
        }
        for address in ready.items().chain(not_ready.items()) {
            legacy_ip(&address.get("ip"), &[], errors);
            address.get("hostname").rule_if_filled(errors, is_dns1123_label);
            if address.get("nodeName").is_set() {
                address.get("nodeName").rule(errors, is_dns1123_subdomain);
            }
            endpoint_ip(&address.get("ip"), errors);
        }
        let ports = subset.get("ports");
        for port in ports.items() {
            let name = port.get("name");
            if ports.len() > 1 && name.is_empty() {
                name.required(errors, "");
            }
            name.rule_if_filled(errors, is_dns1123_label);
            port.get("port").int_rule(errors, is_port_number);
            port.get("protocol").one_of_or_default(errors, &["SCTP", "TCP", "UDP"]);
            if port.get("appProtocol").is_set() {
                port.get("appProtocol").rule(errors, is_qualified_name);
            }
        }
    }
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    if object.get("subsets") != old.get("subsets") {
        validate(object, errors);
    }
}
