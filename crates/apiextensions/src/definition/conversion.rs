//! Validation of `spec.conversion`.

use std::collections::BTreeSet;

use meta::{
    FieldErrors, FieldPath, Value,
    names::{is_dns1035_label, validate_webhook_service, validate_webhook_url},
};

use x509_parser::pem::Pem;

use super::validation_options::ValidationOptions;

/// The versions of ConversionReview that this server sends.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

pub(super) fn check(
    conversion: &Value,
    options: &ValidationOptions,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let strategy = conversion.str_at(&["strategy"]);
    match strategy {
        "" => errors.required(path.child("strategy"), ""),
        "None" | "Webhook" => {}
        other => errors.not_supported(path.child("strategy"), other, &["None", "Webhook"]),
    }
    // Compat: in kube-apiserver's internal version these fields are siblings of `strategy`.
    let (config_path, versions_path) =
        (path.child("webhookClientConfig"), path.child("conversionReviewVersions"));
    let config = conversion.at(&["webhook", "clientConfig"]).filter(|config| !config.is_null());
    let versions = conversion.items_at(&["webhook", "conversionReviewVersions"]);
    if strategy != "Webhook" {
        let why = "should not be set when strategy is not set to Webhook";
        if config.is_some() {
            errors.forbidden(&config_path, why);
        }
        if !versions.is_empty() {
            errors.forbidden(&versions_path, why);
        }
        return;
    }
    match config {
        None => errors.required(&config_path, "required when strategy is set to Webhook"),
        Some(config) => check_client_config(config, options, &config_path, errors),
    }
    check_review_versions(versions, options, &versions_path, errors);
}

fn check_client_config(
    config: &Value,
    options: &ValidationOptions,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let given = |name: &str| config.get(name).filter(|value| !value.is_null());
    match (given("url"), given("service")) {
        (Some(url), None) => {
            validate_webhook_url(url.as_str().unwrap_or_default(), &path.child("url"), errors);
        }
        (None, Some(service)) => validate_webhook_service(service, &path.child("service"), errors),
        _ => errors.required(path, "exactly one of url or service is required"),
    }
    let bundle = config.str_at(&["caBundle"]);
    if !options.allow_invalid_ca_bundle
        && let Some(error) = ca_bundle_error(bundle)
    {
        errors.invalid(path.child("caBundle"), bundle, &error);
    }
}

/// Why a `caBundle` cannot be used; None if it can.
pub(crate) fn ca_bundle_error(base64: &str) -> Option<String> {
    use base64::Engine as _;
    let pem = base64::engine::general_purpose::STANDARD.decode(base64).unwrap_or_default();
    if pem.is_empty() {
        return None;
    }
    let (mut blocks, mut malformed) = (0, false);
    for block in Pem::iter_from_buffer(&pem).map_while(Result::ok) {
        blocks += 1;
        if block.label != "CERTIFICATE" {
            continue;
        }
        if block.parse_x509().is_ok() {
            return None;
        }
        malformed = true;
    }
    let why = if malformed {
        "failed to parse certificate: x509: malformed certificate"
    } else if blocks == 0 {
        "unable to parse bytes as PEM block"
    } else {
        "no valid certificate authority data seen"
    };
    Some(format!("unable to load root certificates: {why}"))
}

fn check_review_versions(
    versions: &[Value],
    options: &ValidationOptions,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    if versions.is_empty() {
        return errors.required(path, "");
    }
    let mut seen = BTreeSet::new();
    for (at, version) in versions.iter().enumerate() {
        let version = version.as_str().unwrap_or_default();
        if !seen.insert(version) {
            errors.invalid(path.index(at), version, "duplicate version");
            continue;
        }
        for why in is_dns1035_label(version) {
            errors.invalid(path.index(at), version, &why);
        }
    }
    if options.require_recognized_review_version && !has_recognized_version(versions) {
        let why = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        errors.invalid(path, Value::Array(versions.to_vec()), &why);
    }
}

pub(super) fn has_recognized_version(versions: &[Value]) -> bool {
    versions.iter().filter_map(Value::as_str).any(|version| REVIEW_VERSIONS.contains(&version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_needs_one_certificate() {
        use base64::Engine as _;
        let key = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";
        let broken = "-----BEGIN CERTIFICATE-----\nBggqhkjOPQMBBw==\n-----END CERTIFICATE-----\n";
        let cases = [
            ("", None),
            ("no PEM", Some("unable to parse bytes as PEM block")),
            (key, Some("no valid certificate authority data seen")),
            (broken, Some("failed to parse certificate: x509: malformed certificate")),
        ];
        for (pem, why) in cases {
            let error = ca_bundle_error(&base64::engine::general_purpose::STANDARD.encode(pem));
            let expected = why.map(|why| format!("unable to load root certificates: {why}"));
            assert_eq!(error, expected, "{pem}");
        }
    }
}
