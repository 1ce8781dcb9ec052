//! Certificate signing requests: the request, its approval conditions, and the issued certificate.

use std::collections::BTreeSet;

use base64::Engine as _;
use meta::{FieldErrors, Value};
use x509_parser::{
    certification_request::X509CertificationRequest,
    pem::Pem,
    prelude::{FromDer, X509Certificate},
};

use crate::validation::{cursor::Field, go_json, lists::KEY_USAGES, names::signer_name};

pub(crate) fn request(object: &Value, errors: &mut FieldErrors) {
    validate(object, None, errors);
}

/// Which part of a request is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    Approval,
    Status,
}

pub(crate) fn request_update(object: &Value, old: &Value, part: Part, errors: &mut FieldErrors) {
    validate(object, Some(old), errors);
    let root = Field::root(object);
    let status = root.get("status");
    let conditions = status.get("conditions");
    for name in ["Approved", "Denied", "Failed"] {
        if of_type(object, name).len() < of_type(old, name).len() {
            let why = format!("updates may not remove a condition of type \"{name}\"");
            conditions.forbidden(errors, &why);
        }
    }
    if part != Part::Approval {
        for name in ["Approved", "Denied"] {
            let (now, before) = (of_type(object, name), of_type(old, name));
            if now.len() > before.len() {
                let why = format!("updates may not add a condition of type \"{name}\"");
                conditions.forbidden(errors, &why);
            } else if now.len() == before.len() && now != before {
                let [before, now] = [before, now].map(|list| list.into_iter().cloned().collect());
                let [before, now] = [Value::Array(before), Value::Array(now)];
                let diff = go_json::diff("[]CertificateSigningRequestCondition", &before, &now);
                let why = format!("updates may not modify a condition of type \"{name}\"\n{diff}");
                conditions.forbidden(errors, &why);
            }
        }
    }
    let before = old.str_at(&["status", "certificate"]);
    let certificate = status.get("certificate");
    if !certificate.is(before) {
        if part != Part::Status {
            certificate.forbidden(errors, "updates may not set certificate content");
        } else if !before.is_empty() {
            let why = "updates may not modify existing certificate content";
            certificate.forbidden(errors, why);
        }
    }
}

fn of_type<'a>(request: &'a Value, name: &str) -> Vec<&'a Value> {
    let conditions = request.items_at(&["status", "conditions"]).iter();
    conditions.filter(|condition| condition.str_at(&["type"]) == name).collect()
}

/// What the old object has wrong already may stay wrong.
fn validate(object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let request = spec.get("request");
    if let Err(why) = check_request(request.str()) {
        request.invalid(errors, &why);
    }
    usages(&spec.get("usages"), old, errors);
    let signer = spec.get("signerName");
    let was_legacy = old.is_some_and(|old| old.str_at(&["spec", "signerName"]) == LEGACY_SIGNER);
    if signer.is(LEGACY_SIGNER) && !was_legacy {
        signer.invalid(errors, "the legacy signerName is not allowed via this API version");
    } else {
        signer_name(&signer, errors);
    }
    let seconds = spec.get("expirationSeconds");
    if seconds.int().is_some_and(|seconds| seconds < 600) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        seconds.invalid(errors, why);
    }
    let status = root.get("status");
    conditions(&status.get("conditions"), old, errors);
    let certificate = status.get("certificate");
    let was_there = old.is_some_and(|old| {
        let before = old.str_at(&["status", "certificate"]);
        certificate.is(before) || (!before.is_empty() && check_certificates(before).is_err())
    });
    if !was_there && let Err(why) = check_certificates(certificate.str()) {
        certificate.invalid_value(errors, "<certificate data>", &why);
    }
}

const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";

fn usages(usages: &Field<'_>, old: Option<&Value>, errors: &mut FieldErrors) {
    usages.require(errors);
    let before: Vec<&str> = old
        .map_or(&[][..], |old| old.items_at(&["spec", "usages"]))
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let is_known = |usage: &&str| KEY_USAGES.contains(usage);
    if before.iter().all(is_known) {
        for usage in usages.items().filter(|usage| !is_known(&usage.str())) {
            usage.not_supported(errors, KEY_USAGES);
        }
    }
    let distinct: BTreeSet<&str> = before.iter().copied().collect();
    if distinct.len() == before.len() {
        let mut seen = BTreeSet::new();
        for usage in usages.items() {
            if !seen.insert(usage.str()) {
                usage.duplicate(errors);
            }
        }
    }
}

fn conditions(conditions: &Field<'_>, old: Option<&Value>, errors: &mut FieldErrors) {
    let before: Vec<&str> = old
        .map_or(&[][..], |old| old.items_at(&["status", "conditions"]))
        .iter()
        .map(|condition| condition.str_at(&["type"]))
        .collect();
    let both_before = ["Approved", "Denied"].iter().all(|name| before.contains(name));
    let distinct: BTreeSet<&str> = before.iter().copied().collect();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for condition in conditions.items() {
        let (name, status) = (condition.get("type"), condition.get("status"));
        if !distinct.contains("") {
            name.require(errors);
        }
        let values: &[&str] = match name.str() {
            "Approved" | "Denied" | "Failed" => &["True"],
            _ => &["False", "True", "Unknown"],
        };
        if status.require(errors) && !values.contains(&status.str()) {
            status.not_supported(errors, values);
        }
        let other = match name.str() {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !both_before && !other.is_empty() && seen.contains(other) {
            let why = "Approved and Denied conditions are mutually exclusive";
            conditions.invalid_value(errors, name.str(), why);
        }
        if !seen.insert(condition.str_at(&["type"])) && distinct.len() == before.len() {
            name.duplicate(errors);
        }
    }
}

/// The blocks of text in base64 of a field that holds bytes.
fn pem_blocks(text: &str) -> Vec<Pem> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default();
    Pem::iter_from_buffer(&bytes).map_while(Result::ok).collect()
}

fn check_request(base64: &str) -> Result<(), String> {
    let wrong_type = || "PEM block type must be CERTIFICATE REQUEST".to_owned();
    let block = pem_blocks(base64).into_iter().next().ok_or_else(wrong_type)?;
    if block.label != "CERTIFICATE REQUEST" {
        return Err(wrong_type());
    }
    // Go says in its own words where the structure breaks off.
    let (_, request) = X509CertificationRequest::from_der(&block.contents)
        .map_err(|error| format!("asn1: structure error: {error}"))?;
    request.verify_signature().map_err(|_| "x509: signature check failed".to_owned())
}

fn check_certificates(base64: &str) -> Result<(), String> {
    if base64.is_empty() {
        return Ok(());
    }
    let blocks = pem_blocks(base64);
    if blocks.is_empty() {
        return Err("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    for block in blocks {
        if block.label != "CERTIFICATE" {
            let found = meta::field::quote(&block.label);
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found {found}"));
        }
        if block.contents.is_empty() {
            return Err("found CERTIFICATE PEM block containing 0 certificates".to_owned());
        }
        X509Certificate::from_der(&block.contents)
            .map_err(|error| format!("x509: malformed certificate: {error}"))?;
    }
    Ok(())
}
