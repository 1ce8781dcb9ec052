//! Endpoints: the addresses behind a service.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::defaulting::SetDefault;
use crate::printer_cells::{NONE, SHOWN_MAX, with_more};
use crate::validation::cursor::Field;
use crate::warnings;

pub(crate) struct Endpoints;

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const OWN_CONTROLLER: &str = "endpoint-controller";

impl Strategy for Endpoints {
    fn default(&self, endpoints: &mut Value) {
        for subset in endpoints.object_at_mut(&[]).each("subsets") {
            for port in subset.each("ports") {
                port.set_default_if_empty("protocol", "TCP");
            }
        }
    }

    fn validate(&self, endpoints: &Value, errors: &mut FieldErrors) {
        validation::validate(endpoints, errors);
    }

    fn validate_update(&self, endpoints: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(endpoints, old, errors);
    }

    fn warnings(&self, _subresource: &str, endpoints: &Value, _old: Option<&Value>) -> Vec<String> {
        let mut texts = Vec::new();
        // Kubernetes' own controller writes addresses in their usual form.
        if endpoints.str_at(&["metadata", "labels", MANAGED_BY]) == OWN_CONTROLLER {
            return texts;
        }
        for subset in Field::root(endpoints).get("subsets").items() {
            for list in ["addresses", "notReadyAddresses"] {
                for address in subset.get(list).items() {
                    let ip = address.get("ip");
                    texts.extend(warnings::ip(&ip.path().to_string(), ip.str()));
                }
            }
        }
        texts
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Endpoints", |endpoints, _| addresses(endpoints).into()),
            Column::AGE,
        ]
    }
}

/// Every address with every port of its subset; a headless service may have no ports at all.
fn addresses(endpoints: &Value) -> String {
    let subsets = endpoints.items_at(&["subsets"]);
    if subsets.is_empty() {
        return NONE.to_owned();
    }
    let mut all = Vec::new();
    for subset in subsets {
        let addresses = subset.items_at(&["addresses"]).iter();
        let ips = addresses.map(|address| address.str_at(&["ip"]));
        let ports = subset.items_at(&["ports"]);
        if ports.is_empty() {
            all.extend(ips.map(str::to_owned));
            continue;
        }
        for port in ports {
            let port = port.i64_at(&["port"]).unwrap_or_default();
            all.extend(ips.clone().map(|ip| host_and_port(ip, port)));
        }
    }
    with_more(&all, SHOWN_MAX, ",")
}

/// IPv6 addresses need brackets, or their last part would read as the port.
fn host_and_port(ip: &str, port: i64) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}
