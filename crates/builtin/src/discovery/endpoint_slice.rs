//! Endpoint slices.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy, WriteContext};

use crate::defaulting::SetDefault;
use crate::printer_cells::{SHOWN_MAX, UNSET, text, with_more};
use crate::validation::cursor::Field;
use crate::warnings;

pub(crate) struct EndpointSlice;

const HOSTNAME: &str = "kubernetes.io/hostname";

/// Drops `deprecatedTopology` from what clients write. The node that it named before is kept.
fn drop_topology(slice: &mut Value, old: Option<&Value>) {
    let old = old.map_or(&[][..], |old| old.items_at(&["endpoints"]));
    let node_of = |endpoint: &Value| -> String {
        endpoint.str_at(&["deprecatedTopology", HOSTNAME]).to_owned()
    };
    let known: Vec<String> = old.iter().map(node_of).filter(|node| !node.is_empty()).collect();
    for endpoint in slice.at_mut(&["endpoints"]).and_then(Value::as_array_mut).into_iter().flatten()
    {
        let node = node_of(endpoint);
        if endpoint.get("nodeName").is_none() && known.contains(&node) {
            endpoint.set_at(&["nodeName"], node);
        }
        endpoint.remove_at(&["deprecatedTopology"]);
    }
}

const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const OWN_CONTROLLERS: [&str; 2] =
    ["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"];

impl Strategy for EndpointSlice {
    fn default(&self, slice: &mut Value) {
        for port in slice.object_at_mut(&[]).each("ports") {
            port.set_default("name", "");
            port.set_default("protocol", "TCP");
        }
    }

    fn prepare_for_create(&self, slice: &mut Value, _cx: &WriteContext<'_>) {
        drop_topology(slice, None);
    }

    fn prepare_for_update(&self, slice: &mut Value, old: &Value, _cx: &WriteContext<'_>) {
        if slice.get("endpoints") != old.get("endpoints") {
            drop_topology(slice, Some(old));
        }
    }

    fn validate(&self, slice: &Value, errors: &mut FieldErrors) {
        validation::validate(slice, errors);
    }

    fn validate_update(&self, slice: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(slice, old, errors);
    }

    fn warnings(&self, _subresource: &str, slice: &Value, old: Option<&Value>) -> Vec<String> {
        let mut texts = Vec::new();
        if old.is_none() && slice.str_at(&["addressType"]) == "FQDN" {
            texts.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
        }
        // Kubernetes' own controllers write addresses in their usual form.
        if OWN_CONTROLLERS.contains(&slice.str_at(&["metadata", "labels", MANAGED_BY])) {
            return texts;
        }
        for endpoint in Field::root(slice).get("endpoints").items() {
            for address in endpoint.get("addresses").items() {
                texts.extend(warnings::ip(&address.path().to_string(), address.str()));
            }
        }
        texts
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("AddressType", |slice, _| text(slice, &["addressType"])),
            Column::new("Ports", |slice, _| some_of(&ports(slice)).into()),
            Column::new("Endpoints", |slice, _| some_of(&addresses(slice)).into()),
            Column::AGE,
        ]
    }
}

/// A port without a number goes by its name; with neither it stands for all ports.
fn ports(slice: &Value) -> Vec<String> {
    let ports = slice.items_at(&["ports"]).iter();
    let texts = ports.map(|port| match port.i64_at(&["port"]) {
        Some(number) => number.to_string(),
        None => port.get("name").and_then(Value::as_str).unwrap_or("*").to_owned(),
    });
    texts.collect()
}

fn addresses(slice: &Value) -> Vec<String> {
    let endpoints = slice.items_at(&["endpoints"]).iter();
    let addresses = endpoints.flat_map(|endpoint| endpoint.items_at(&["addresses"]));
    addresses.map(|address| address.as_str().unwrap_or_default().to_owned()).collect()
}

fn some_of(texts: &[String]) -> String {
    match with_more(texts, SHOWN_MAX, ",") {
        text if text.is_empty() => UNSET.to_owned(),
        text => text,
    }
}
