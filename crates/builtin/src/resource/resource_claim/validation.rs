//! The spec of a resource claim, which a template has too: requests for devices.

mod status;

use std::collections::{BTreeMap, BTreeSet};

use meta::{
    FieldErrors, Value,
    names::{is_dns1123_label, is_dns1123_subdomain, is_label_value, is_qualified_name},
};

pub(super) use self::status::validate_status;
use crate::validation::{
    cursor::{Field, IMMUTABLE},
    devices::{LIST_MAX, TAINT_EFFECTS, attribute_name, configuration, each, selectors, set},
};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    claim_spec(&Field::root(object).get("spec"), errors);
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    if object.get("spec") != old.get("spec") {
        Field::root(object).get("spec").invalid(errors, IMMUTABLE);
    }
}

pub(crate) fn claim_spec(spec: &Field<'_>, errors: &mut FieldErrors) {
    let devices = spec.get("devices");
    let names = Requests::of(&devices);
    set(&devices.get("requests"), LIST_MAX, errors, "name", |item, errors| request(&item, errors));
    each(&devices.get("constraints"), LIST_MAX, errors, |constraint, errors| {
        request_references(&constraint.get("requests"), &names, errors);
        let (same, distinct) =
            (constraint.get("matchAttribute"), constraint.get("distinctAttribute"));
        if same.is_set() {
            full_name(&same, errors);
        } else if distinct.is_set() {
            full_name(&distinct, errors);
        } else {
            let why = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, \
                       but multiple fields are set";
            constraint.required(errors, why);
        }
    });
    each(&devices.get("config"), LIST_MAX, errors, |config, errors| {
        request_references(&config.get("requests"), &names, errors);
        configuration(&config, errors);
    });
}

fn request(request: &Field<'_>, errors: &mut FieldErrors) {
    request.get("name").rule(errors, is_dns1123_label);
    let (exactly, first) = (request.get("exactly"), request.get("firstAvailable"));
    match (exactly.is_set(), !first.is_empty()) {
        (false, false) => {
            let why = "exactly one of `exactly` or `firstAvailable` is required";
            request.required(errors, why);
        }
        (true, true) => {
            let why = "exactly one of `exactly` or `firstAvailable` is required, but multiple \
                       fields are set";
            request.invalid_value(errors, Value::Null, why);
        }
        (false, true) => set(&first, 8, errors, "name", |sub, errors| {
            sub.get("name").rule(errors, is_dns1123_label);
            exact_request(&sub, errors);
        }),
        (true, false) => exact_request(&exactly, errors),
    }
}

fn exact_request(request: &Field<'_>, errors: &mut FieldErrors) {
    request.get("deviceClassName").require_rule(errors, is_dns1123_subdomain);
    selectors(&request.get("selectors"), errors);
    let (mode, count) = (request.get("allocationMode"), request.get("count"));
    match mode.str() {
        "All" if count.int_or_zero() != 0 => {
            count.invalid(errors, "must not be specified when allocationMode is 'All'");
        }
        "All" => {}
        "ExactCount" => count.positive(errors),
        _ => mode.not_supported(errors, &["All", "ExactCount"]),
    }
    for toleration in request.get("tolerations").items() {
        device_toleration(&toleration, errors);
    }
}

fn device_toleration(toleration: &Field<'_>, errors: &mut FieldErrors) {
    let (operator, value) = (toleration.get("operator"), toleration.get("value"));
    toleration.get("key").rule_if_filled(errors, is_qualified_name);
    match operator.str() {
        "Exists" if !value.is_empty() => {
            value.invalid(errors, "must be empty for operator `Exists`");
        }
        "Exists" => {}
        "Equal" => value.rule(errors, is_label_value),
        "" => operator.required(errors, ""),
        _ => operator.not_supported(errors, &["Equal", "Exists"]),
    }
    toleration.get("effect").one_of_or_default(errors, &TAINT_EFFECTS);
}

fn full_name(name: &Field<'_>, errors: &mut FieldErrors) {
    attribute_name(name.str(), name, errors);
    if !name.str().contains('/') {
        let why = "a fully qualified name must be a domain and a name separated by a slash";
        name.invalid(errors, why);
    }
}

/// The requests of a claim, with those below them.
struct Requests<'a>(BTreeMap<&'a str, BTreeSet<&'a str>>);

impl<'a> Requests<'a> {
    fn of(devices: &Field<'a>) -> Self {
        let requests = devices.value().map_or(&[][..], |devices| devices.items_at(&["requests"]));
        Self(
            requests
                .iter()
                .map(|request| {
                    let below = request.items_at(&["firstAvailable"]).iter();
                    (request.str_at(&["name"]), below.map(|sub| sub.str_at(&["name"])).collect())
                })
                .collect(),
        )
    }

    fn contains(&self, reference: &str) -> bool {
        let (name, below) = reference.split_once('/').unwrap_or((reference, ""));
        let found = self.0.get(name);
        found.is_some_and(|known| !reference.contains('/') || known.contains(below))
    }
}

fn request_references(references: &Field<'_>, names: &Requests<'_>, errors: &mut FieldErrors) {
    set(references, LIST_MAX, errors, "", |item, errors| request_reference(&item, names, errors));
}

fn request_reference(reference: &Field<'_>, names: &Requests<'_>, errors: &mut FieldErrors) {
    let why = "must be the name of a request in the claim or the name of a request and a \
               subrequest separated by '/'";
    let text = reference.str();
    let parts: Vec<&str> = text.split('/').collect();
    if parts.len() > 2 {
        return reference.invalid(errors, why);
    }
    for part in parts {
        for why in is_dns1123_label(part) {
            reference.invalid_value(errors, part, &why);
        }
    }
    if !names.contains(text) {
        reference.invalid_value(errors, text, why);
    }
}
