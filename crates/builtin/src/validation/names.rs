//! Rules for names that only a few kinds have.

use meta::{
    FieldErrors,
    field::quote,
    names::{is_dns1123_label, is_dns1123_subdomain, regex_error},
};

use super::cursor::Field;

/// The name of a signer: `example.com/name`.
pub(crate) fn signer_name(name: &Field<'_>, errors: &mut FieldErrors) {
    if !name.require(errors) {
        return;
    }
    let [domain, path] = *name.str().split('/').collect::<Vec<_>>() else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return name.invalid(errors, why);
    };
    if domain.len() > 253 {
        errors.too_long(name.path(), 253);
    }
    let labels: Vec<&str> = domain.split('.').collect();
    labels_of(name, domain, &labels, is_dns1123_label, errors);
    if labels.len() < 2 {
        let why = "should be a domain with at least two segments separated by dots";
        name.invalid_value(errors, domain, why);
    }
    let labels: Vec<&str> = path.split('.').collect();
    labels_of(name, path, &labels, is_dns1123_subdomain, errors);
    if name.len() > SIGNER_BYTES_MAX {
        errors.too_long(name.path(), SIGNER_BYTES_MAX);
    }
}

/// The first label that isn't good.
fn labels_of(
    name: &Field<'_>,
    shown: &str,
    labels: &[&str],
    rule: fn(&str) -> Vec<String>,
    errors: &mut FieldErrors,
) {
    let wrong =
        labels.iter().map(|label| (label, rule(label))).find(|(_, wrong)| !wrong.is_empty());
    for (label, why) in
        wrong.into_iter().flat_map(|(label, wrong)| wrong.into_iter().map(move |why| (label, why)))
    {
        name.invalid_value(errors, shown, &format!("validating label {}: {why}", quote(label)));
    }
}

/// A domain, a slash, a subdomain, a dot and a label.
const SIGNER_BYTES_MAX: usize = 253 + 1 + 253 + 63 + 1;

/// The bundles of a signer are named after it: `example.com:signer:name`.
pub(crate) fn cluster_trust_bundle_name(name: &str) -> Vec<String> {
    let own = name.rsplit_once(':').map_or(name, |(_, own)| own);
    is_dns1123_subdomain(own)
}

/// `example.com/any/path`.
pub(crate) fn domain_prefixed_path(field: &Field<'_>, errors: &mut FieldErrors) {
    if !field.require(errors) {
        return;
    }
    let parts =
        field.str().split_once('/').filter(|(host, path)| !host.is_empty() && !path.is_empty());
    let Some((host, path)) = parts else {
        return field.invalid(errors, "must be a domain-prefixed path (such as \"acme.io/foo\")");
    };
    for why in is_dns1123_subdomain(host) {
        field.invalid_value(errors, host, &why);
    }
    if !path.chars().all(is_path_character) {
        let why = regex_error("Invalid path", "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+", &[]);
        field.invalid_value(errors, path, &why);
    }
}

fn is_path_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c)
}
