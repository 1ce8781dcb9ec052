//! Services: a stable address and name in front of what changes.

pub(crate) mod addresses;
pub(crate) mod allocate;
mod defaults;
pub(crate) mod ip_families;
pub(crate) mod metrics;
pub(crate) mod ports;
pub(crate) mod range;
mod repair;
mod shared_ports;
pub(crate) mod type_dependent_fields;
mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy, WriteContext};

use self::defaults::default_service;
use crate::printer_cells::{NONE, UNKNOWN, joined, labels, load_balancer, text};

use self::{
    ip_families::{Addressing, validate_change},
    type_dependent_fields::drop_type_dependent_fields,
};
use crate::warnings;

pub(crate) struct Service;

impl Strategy for Service {
    fn default(&self, service: &mut Value) {
        default_service(service.object_at_mut(&[]));
    }

    fn prepare_for_update(&self, service: &mut Value, old: &Value, _cx: &WriteContext<'_>) {
        drop_type_dependent_fields(service, old);
    }

    fn validate(&self, service: &Value, errors: &mut FieldErrors) {
        validation::validate(service, errors);
    }

    fn validate_update(&self, service: &Value, old: &Value, errors: &mut FieldErrors) {
        validate_change(&Addressing::of(service), &Addressing::of(old), errors);
        validation::validate_update(service, old, errors);
    }

    fn warnings(&self, subresource: &str, service: &Value, _old: Option<&Value>) -> Vec<String> {
        match subresource {
            "" => warnings::service(service),
            "status" => warnings::load_balancer(service),
            _ => Vec::new(),
        }
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Type", |service, _| text(service, &["spec", "type"])),
            Column::new("Cluster-IP", |service, _| cluster_ip(service).into()),
            Column::new("External-IP", |service, _| external_ip(service).into()),
            Column::new("Port(s)", |service, _| ports(service).into()),
            Column::AGE,
            Column::new("Selector", |service, _| labels(service, &["spec", "selector"])).wide(),
        ]
    }
}

fn cluster_ip(service: &Value) -> &str {
    let first = service.items_at(&["spec", "clusterIPs"]).first().and_then(Value::as_str);
    match service.str_at(&["spec", "clusterIP"]) {
        "" => first.unwrap_or(NONE),
        ip => first.unwrap_or(ip),
    }
}

/// Where clients outside of the cluster reach the service.
fn external_ip(service: &Value) -> String {
    let given = joined(service, &["spec", "externalIPs"]);
    match service.str_at(&["spec", "type"]) {
        "ClusterIP" | "NodePort" if given.is_empty() => NONE.to_owned(),
        "ClusterIP" | "NodePort" => given,
        "LoadBalancer" => {
            let balanced = load_balancer(service);
            match (balanced.is_empty(), given.is_empty()) {
                (true, true) => "<pending>".to_owned(),
                (false, false) => format!("{balanced},{given}"),
                _ => balanced + &given,
            }
        }
        "ExternalName" => service.str_at(&["spec", "externalName"]).to_owned(),
        _ => UNKNOWN.to_owned(),
    }
}

/// `80/TCP,443:30443/TCP`
fn ports(service: &Value) -> String {
    let ports: Vec<String> = service.items_at(&["spec", "ports"]).iter().map(port).collect();
    if ports.is_empty() { NONE.to_owned() } else { ports.join(",") }
}

fn port(port: &Value) -> String {
    let number = |field| port.i64_at(&[field]).unwrap_or_default();
    let protocol = port.str_at(&["protocol"]);
    match number("nodePort") {
        1.. => format!("{}:{}/{protocol}", number("port"), number("nodePort")),
        _ => format!("{}/{protocol}", number("port")),
    }
}
