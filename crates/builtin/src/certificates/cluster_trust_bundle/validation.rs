//! Cluster trust bundles: certificates of authorities, and nothing else.

use std::collections::BTreeMap;

use meta::{
    FieldErrors, Value,
    names::{invalid_each, name_is_dns_subdomain},
};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::certificates::pem;
use crate::validation::{
    cursor::{Field, IMMUTABLE},
    names::signer_name,
};

pub(crate) fn bundle(object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let (metadata, spec) = (root.get("metadata"), root.get("spec"));
    let (name, signer) = (metadata.get("name"), spec.get("signerName"));
    if !name.is_empty() {
        invalid_each(errors, &name.path(), name.str(), name_errors(name.str(), signer.str()));
    }
    if !signer.is_empty() {
        signer_name(&signer, errors);
    }
    let bundle = spec.get("trustBundle");
    if old.is_none_or(|old| old.str_at(&["spec", "trustBundle"]) != bundle.str()) {
        trust_bundle(&bundle, errors);
    }
    if let Some(old) = old
        && signer.str() != old.str_at(&["spec", "signerName"])
    {
        signer.invalid_value(errors, signer.str(), IMMUTABLE);
    }
}

/// The bundles of a signer are named after it: `example.com:signer:name`.
fn name_errors(name: &str, signer: &str) -> Vec<String> {
    if signer.is_empty() {
        if name.contains(':') {
            let why = "ClusterTrustBundle without signer name must not have \":\" in its name";
            return vec![why.to_owned()];
        }
        return name_is_dns_subdomain(name, false);
    }
    let prefix = format!("{}:", signer.replace('/', ":"));
    match name.strip_prefix(&prefix) {
        Some(own) => name_is_dns_subdomain(own, false),
        None => vec![format!(
            "ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"
        )],
    }
}

const BYTES_MAX: usize = 1024 * 1024;

fn trust_bundle(bundle: &Field<'_>, errors: &mut FieldErrors) {
    if bundle.len() > BYTES_MAX {
        return errors.too_long(bundle.path(), BYTES_MAX);
    }
    let blocks = pem::blocks(bundle.str().as_bytes());
    let mut is_good = true;
    for (at, block) in blocks.iter().enumerate() {
        if let Err(why) = trust_anchor(block) {
            is_good = false;
            bundle.invalid_value(errors, OMITTED, &format!("entry {at} {why}"));
        }
    }
    if !is_good {
        return;
    }
    if blocks.is_empty() {
        let why = "at least one trust anchor must be provided";
        bundle.invalid_value(errors, OMITTED, why);
    }
    let mut places: BTreeMap<&[u8], Vec<String>> = BTreeMap::new();
    for (at, block) in blocks.iter().enumerate() {
        places.entry(&block.contents).or_default().push(at.to_string());
    }
    for places in places.values().filter(|places| places.len() > 1) {
        let why = format!("duplicate trust anchor (indices [{}])", places.join(" "));
        bundle.invalid_value(errors, OMITTED, &why);
    }
}

const OMITTED: &str = "<value omitted>";

fn trust_anchor(block: &pem::Block) -> Result<(), String> {
    if block.label != "CERTIFICATE" {
        return Err(format!("has bad block type: {}", block.label));
    }
    if block.has_headers {
        return Err("has PEM block headers".to_owned());
    }
    let Ok((_, certificate)) = X509Certificate::from_der(&block.contents) else {
        return Err("does not parse as X.509".to_owned());
    };
    if certificate.is_ca() { Ok(()) } else { Err("does not have the CA bit set".to_owned()) }
}
