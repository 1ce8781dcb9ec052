//! Endpoints: the addresses behind a service.

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::fill::Fill;
use crate::format::{NONE, SHOWN_MAX, with_more};
use crate::validation::endpoints;

pub(crate) struct Endpoints;

impl Strategy for Endpoints {
    fn default(&self, endpoints: &mut Value) {
        for subset in endpoints.object_at_mut(&[]).each("subsets") {
            for port in subset.each("ports") {
                port.fill_empty("protocol", "TCP");
            }
        }
    }

    fn validate(&self, endpoints: &Value, errors: &mut FieldErrors) {
        endpoints::endpoints(endpoints, errors);
    }

    fn validate_update(&self, endpoints: &Value, old: &Value, errors: &mut FieldErrors) {
        endpoints::endpoints_update(endpoints, old, errors);
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
