//! Endpoint slices.

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::fill::Fill;
use crate::format::{SHOWN_MAX, UNSET, text, with_more};
use crate::validation::endpoints;

pub(crate) struct EndpointSlice;

impl Strategy for EndpointSlice {
    fn default(&self, slice: &mut Value) {
        for port in slice.object_at_mut(&[]).each("ports") {
            port.fill("name", "");
            port.fill("protocol", "TCP");
        }
    }

    fn validate(&self, slice: &Value, errors: &mut FieldErrors) {
        endpoints::slice(slice, errors);
    }

    fn validate_update(&self, slice: &Value, old: &Value, errors: &mut FieldErrors) {
        endpoints::slice_update(slice, old, errors);
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
