//! Validation of ingresses.

use meta::{
    FieldErrors, Value,
    field::RuleId,
    names::{
        is_dns1123_label, is_dns1123_subdomain, is_port_name, is_port_number,
        is_wildcard_dns1123_subdomain, name_is_path_segment,
    },
};

use crate::validation::{
    cursor::Field,
    ip::{legacy_ip, parse_sloppy},
    ratcheting::ratchet,
};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    ingress_spec(&spec, errors);
    let note = root.value_at(&["metadata", "annotations", CLASS_ANNOTATION]);
    let class = spec.value_at(&["ingressClassName"]);
    if note.is_some() && class.is_some() && note != class {
        let annotations = root.get("annotations");
        let why = "must match `ingressClassName` when both are specified";
        annotations.get(CLASS_ANNOTATION).with(note).invalid(errors, why);
    }
}

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    ingress_spec(&root.get("spec"), errors);
    ratchet(old, validate, errors);
    if object.get("status") == old.get("status") {
        return;
    }
    let before: Vec<&str> = old
        .items_at(&["status", "loadBalancer", "ingress"])
        .iter()
        .map(|point| point.str_at(&["ip"]))
        .collect();
    let status = root.get("status");
    let balancer = status.get("loadBalancer");
    for point in balancer.get("ingress").items() {
        if !point.get("ip").is_empty() {
            legacy_ip(&point.get("ip"), &before, errors);
        }
        let host = point.get("hostname");
        host.rule_if_filled(errors, is_dns1123_subdomain);
        if parse_sloppy(host.str()).is_some() {
            host.invalid(errors, NOT_AN_IP);
        }
    }
}

const NOT_AN_IP: &str = "must be a DNS name, not an IP address";

fn ingress_spec(spec: &Field<'_>, errors: &mut FieldErrors) {
    let (rules, default) = (spec.get("rules"), spec.get("defaultBackend"));
    if rules.is_empty() && !default.is_set() {
        // Compat: the error shows the rules.
        let why = "either `defaultBackend` or `rules` must be specified";
        spec.invalid_value(errors, meta::Value::Null, why);
    }
    if default.is_set() {
        backend(&default, errors);
    }
    for rule in rules.items() {
        let name = rule.get("host");
        if parse_sloppy(name.str()).is_some() {
            name.invalid(errors, NOT_AN_IP);
        }
        host(&name, errors);
        let http = rule.get("http");
        if !http.is_set() {
            continue;
        }
        http.get("paths").require(errors);
        for path in http.get("paths").items() {
            ingress_path(&path, errors);
        }
    }
    for tls in spec.get("tls").items() {
        for name in tls.get("hosts").items() {
            if name.is_empty() {
                name.rule(errors, is_dns1123_subdomain);
            }
            host(&name, errors);
        }
        errors.with_rule(TLS_SECRET_NAME, |errors| {
            tls.get("secretName").rule_if_filled(errors, is_dns1123_subdomain);
        });
    }
    if spec.get("ingressClassName").is_set() {
        spec.get("ingressClassName").rule(errors, is_dns1123_subdomain);
    }
}

/// The secrets of an ingress have names that a secret can have.
pub(crate) const TLS_SECRET_NAME: RuleId = RuleId::new("ingress TLS secret name");

fn host(name: &Field<'_>, errors: &mut FieldErrors) {
    if name.str().contains('*') {
        name.rule(errors, is_wildcard_dns1123_subdomain);
    } else {
        name.rule_if_filled(errors, is_dns1123_subdomain);
    }
}

fn ingress_path(path: &Field<'_>, errors: &mut FieldErrors) {
    let (text, kind) = (path.get("path"), path.get("pathType"));
    if !kind.is_set() {
        return kind.required(errors, "pathType must be specified");
    }
    let is_absolute = text.str().starts_with('/');
    match kind.str() {
        "Exact" | "Prefix" => {
            if !is_absolute {
                text.invalid_value(errors, text.str(), "must be an absolute path");
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"] {
                if text.str().contains(part) {
                    text.invalid(errors, &format!("must not contain '{part}'"));
                }
            }
            for end in ["/..", "/."] {
                if text.str().ends_with(end) {
                    text.invalid(errors, &format!("cannot end with '{end}'"));
                }
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !is_absolute {
                text.invalid(errors, "must be an absolute path");
            }
        }
        _ => kind.not_supported(errors, &["Exact", "ImplementationSpecific", "Prefix"]),
    }
    backend(&path.get("backend"), errors);
}

fn backend(backend: &Field<'_>, errors: &mut FieldErrors) {
    let (resource, service) = (backend.get("resource"), backend.get("service"));
    match (resource.is_set(), service.is_set()) {
        (true, true) => {
            backend.invalid_value(errors, "", "cannot set both resource and service backends");
        }
        (true, false) => typed_reference(&resource, errors),
        (false, true) => {
            service.get("name").require_rule(errors, is_dns1123_label);
            let port = service.get("port");
            let (name, number) = (port.get("name"), port.get("number"));
            match (!name.is_empty(), number.int_or_zero() != 0) {
                (true, true) => {
                    backend.invalid_value(errors, "", "cannot set both port name & port number");
                }
                (true, false) => name.rule(errors, is_port_name),
                (false, true) => number.int_rule(errors, is_port_number),
                (false, false) => backend.required(errors, "port name or number is required"),
            }
        }
        (false, false) => {
            backend.invalid_value(errors, "", "resource or service backend is required");
        }
    }
}

pub(crate) fn is_path_segment(text: &str) -> Vec<String> {
    name_is_path_segment(text, false)
}

pub(crate) fn typed_reference(reference: &Field<'_>, errors: &mut FieldErrors) {
    if reference.get("apiGroup").is_set() {
        reference.get("apiGroup").rule(errors, is_dns1123_subdomain);
    }
    reference.get("kind").require_rule(errors, is_path_segment);
    reference.get("name").require_rule(errors, is_path_segment);
}
