//! `apiextensions.k8s.io/v1beta1`: the shape in which kube-apiserver still stores definitions. What all
//! versions have in common stands in front there, and some names differ.

use meta::{Value, cancel::interruptible, value};
use registry::Conversion;

pub(super) struct V1Beta1;

/// Of a version in v1, and of the whole in v1beta1.
const SHARED: [(&str, &str); 4] = [
    ("subresources", "subresources"),
    ("schema", "validation"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

impl Conversion for V1Beta1 {
    /// From v1beta1.
    fn to_stored(&self, mut object: Value) -> Value {
        let Some(spec) = object.get_mut("spec") else { return object };
        let version = spec.remove_at(&["version"]);
        if spec.items_at(&["versions"]).is_empty()
            && let Some(version) = version
        {
            spec.set_at(
                &["versions"],
                value!([{"name": (version), "served": true, "storage": true}]),
            );
        }
        for (own, shared) in SHARED {
            let Some(value) = spec.remove_at(&[shared]) else { continue };
            for version in interruptible(versions_mut(spec).iter_mut()) {
                version.set_at(&[own], value.clone());
            }
        }
        for version in interruptible(versions_mut(spec).iter_mut()) {
            rename_paths(version, "JSONPath", "jsonPath");
        }
        let client = spec.remove_at(&["conversion", "webhookClientConfig"]);
        let reviews = spec.remove_at(&["conversion", "conversionReviewVersions"]);
        if let Some(client) = client {
            spec.set_at(&["conversion", "webhook", "clientConfig"], client);
        }
        if let Some(reviews) = reviews {
            spec.set_at(&["conversion", "webhook", "conversionReviewVersions"], reviews);
        }
        // Compat: what was stored before the field was there keeps what it does not know.
        match spec.get("preserveUnknownFields").map(Value::as_bool) {
            None => spec.set_at(&["preserveUnknownFields"], true),
            Some(Some(false)) => drop(spec.remove_at(&["preserveUnknownFields"])),
            Some(_) => {}
        }
        object
    }

    /// To v1beta1.
    fn to_served(&self, mut object: Value) -> Value {
        let Some(spec) = object.get_mut("spec") else { return object };
        if let Some(first) = spec.items_at(&["versions"]).first() {
            let name = first.str_at(&["name"]).to_owned();
            spec.set_at(&["version"], name);
        }
        for version in interruptible(versions_mut(spec).iter_mut()) {
            rename_paths(version, "jsonPath", "JSONPath");
        }
        for (own, shared) in SHARED {
            let mut all = spec.items_at(&["versions"]).iter().map(|version| version.get(own));
            let first = all.next().flatten().cloned();
            if !all.all(|other| other == first.as_ref()) {
                continue;
            }
            for version in interruptible(versions_mut(spec).iter_mut()) {
                version.remove_at(&[own]);
            }
            if let Some(first) = first {
                spec.set_at(&[shared], first);
            }
        }
        if let Some(mut webhook) = spec.remove_at(&["conversion", "webhook"]) {
            if let Some(client) = webhook.remove_at(&["clientConfig"]) {
                spec.set_at(&["conversion", "webhookClientConfig"], client);
            }
            if let Some(reviews) = webhook.remove_at(&["conversionReviewVersions"]) {
                spec.set_at(&["conversion", "conversionReviewVersions"], reviews);
            }
        }
        let preserve = spec.bool_at(&["preserveUnknownFields"]);
        spec.set_at(&["preserveUnknownFields"], preserve);
        object
    }
}

fn versions_mut(spec: &mut Value) -> &mut [Value] {
    spec.get_mut("versions").and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

/// Columns say by this name where their value is.
fn rename_paths(version: &mut Value, from: &str, to: &str) {
    let columns = version.get_mut("additionalPrinterColumns").and_then(Value::as_array_mut);
    for column in interruptible(columns.into_iter().flatten()) {
        if let Some(path) = column.remove_at(&[from]) {
            column.set_at(&[to], path);
        }
    }
}
