//! Requests for devices: resource claims, their templates and device classes, which share most rules.
//!
//! The rules are for the newest version; objects of an older one are converted before.

mod selector;

use std::collections::{BTreeMap, BTreeSet};

use meta::{
    FieldErrors, Value,
    names::{
        is_c_identifier, is_dns1123_label, is_dns1123_subdomain, is_label_value, is_qualified_name,
    },
};

use super::{
    cursor::{Field, IMMUTABLE},
    pod_spec::is_extended_resource,
    template_meta,
};
use crate::resource::resource_slice::validation::EFFECTS;

pub(crate) fn claim(object: &Value, errors: &mut FieldErrors) {
    claim_spec(&Field::root(object).get("spec"), errors);
}

pub(crate) fn claim_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    if object.get("spec") != old.get("spec") {
        Field::root(object).get("spec").invalid(errors, IMMUTABLE);
    }
}

pub(crate) fn template(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    template_meta(&spec.get("metadata"), errors);
    claim_spec(&spec.get("spec"), errors);
}

pub(crate) fn template_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    template(object, errors);
    claim_update(object, old, errors);
}

pub(crate) fn class(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    selectors(&spec.get("selectors"), errors);
    each(&spec.get("config"), LIST_MAX, errors, |config, errors| configuration(&config, errors));
    let name = spec.get("extendedResourceName");
    if name.is_set() && !is_extended_resource(name.str()) {
        name.invalid(errors, "must be a valid extended resource name");
    }
}

fn claim_spec(spec: &Field<'_>, errors: &mut FieldErrors) {
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

/// Requests, configurations, constraints, selectors, results.
pub(crate) const LIST_MAX: usize = 32;

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
    toleration.get("effect").one_of_or_default(errors, &EFFECTS);
}

fn selectors(list: &Field<'_>, errors: &mut FieldErrors) {
    each(list, LIST_MAX, errors, |selector, errors| {
        let cel = selector.get("cel");
        if !cel.is_set() {
            return cel.required(errors, "");
        }
        selector::validate(&cel, errors);
    });
}

/// What a driver gets to read.
pub(crate) fn configuration(config: &Field<'_>, errors: &mut FieldErrors) {
    let opaque = config.get("opaque");
    if !opaque.is_set() {
        return opaque.required(errors, "");
    }
    driver(&opaque.get("driver"), errors);
    parameters(&opaque.get("parameters"), errors);
}

/// Opaque JSON for the driver.
pub(crate) fn parameters(parameters: &Field<'_>, errors: &mut FieldErrors) {
    const BYTES_MAX: usize = 10 * 1024;
    let Some(value) = parameters.value() else { return parameters.required(errors, "") };
    if meta::json::to_string(value).len() > BYTES_MAX {
        errors.too_long(parameters.path(), BYTES_MAX);
    } else if value.as_object().is_none() {
        parameters.invalid_value(errors, "<value omitted>", "must be a valid JSON object");
    }
}

/// The requests of a claim, with those below them.
pub(crate) struct Requests<'a>(BTreeMap<&'a str, BTreeSet<&'a str>>);

impl<'a> Requests<'a> {
    pub(crate) fn of(devices: &Field<'a>) -> Self {
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

pub(crate) fn request_references(
    references: &Field<'_>,
    names: &Requests<'_>,
    errors: &mut FieldErrors,
) {
    set(references, LIST_MAX, errors, "", |item, errors| request_reference(&item, names, errors));
}

pub(crate) fn request_reference(
    reference: &Field<'_>,
    names: &Requests<'_>,
    errors: &mut FieldErrors,
) {
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

/// `driver.example.com/name`, where the domain may be left out.
pub(crate) fn attribute_name(name: &str, at: &Field<'_>, errors: &mut FieldErrors) {
    let identifier = |id: &str, errors: &mut FieldErrors| {
        if id.len() > 32 {
            errors.too_long(at.path(), 32);
        }
        for why in is_c_identifier(id) {
            at.invalid_value(errors, id, &why);
        }
    };
    match *name.split('/').collect::<Vec<_>>() {
        [id] => identifier(id, errors),
        [domain, id] => {
            if domain.is_empty() {
                at.invalid_value(errors, "", "the domain must not be empty");
            } else {
                let domain = Value::from(domain);
                driver(&at.with(Some(&domain)), errors);
            }
            if id.is_empty() {
                at.invalid_value(errors, "", "the name must not be empty");
            } else {
                identifier(id, errors);
            }
        }
        // Compat: more slashes are let through.
        _ => {}
    }
}

fn full_name(name: &Field<'_>, errors: &mut FieldErrors) {
    attribute_name(name.str(), name, errors);
    if !name.str().contains('/') {
        let why = "a fully qualified name must be a domain and a name separated by a slash";
        name.invalid(errors, why);
    }
}

pub(crate) fn driver(name: &Field<'_>, errors: &mut FieldErrors) {
    super::pod_spec::volume_sources::csi_driver_name(name, errors);
}

pub(crate) fn pool_name(name: &Field<'_>, errors: &mut FieldErrors) {
    if !name.require(errors) {
        return;
    }
    if name.len() > 253 {
        errors.too_long(name.path(), 253);
    }
    for part in name.str().split('/') {
        for why in is_dns1123_subdomain(part) {
            name.invalid_value(errors, part, &why);
        }
    }
}

/// Looks at every item, unless there are too many.
pub(crate) fn each(
    list: &Field<'_>,
    max: usize,
    errors: &mut FieldErrors,
    mut check: impl FnMut(Field<'_>, &mut FieldErrors),
) -> bool {
    if list.len() > max {
        errors.too_many(list.path(), list.len(), max);
        return false;
    }
    for item in list.items() {
        check(item, errors);
    }
    true
}

/// As [`each`], and no two items may have the same key; "" is the item itself.
pub(crate) fn set(
    list: &Field<'_>,
    max: usize,
    errors: &mut FieldErrors,
    key: &str,
    check: impl FnMut(Field<'_>, &mut FieldErrors),
) {
    if !each(list, max, errors, check) {
        return;
    }
    let mut seen = BTreeSet::new();
    for item in list.items() {
        let text = if key.is_empty() { item.str() } else { item.str_at(&[key]) };
        if !seen.insert(text.to_owned()) {
            errors.duplicate(item.path(), text);
        }
    }
}
