//! API services: which server answers for a group and version.

use meta::{
    FieldErrors, Value,
    names::{is_dns1035_label, is_dns1123_subdomain, is_port_number, name_is_path_segment},
};

use crate::validation::cursor::Field;

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let (group, version) = (spec.get("group"), spec.get("version"));
    let metadata = root.get("metadata");
    let required = format!("{}.{}", version.str(), group.str());
    for (field, is_prefix) in [("generateName", true), ("name", false)] {
        let name = metadata.get(field);
        let is_segment = name_is_path_segment(name.str(), is_prefix).is_empty();
        if !name.is_empty() && is_segment && name.str() != required {
            let required = meta::field::quote(&required);
            name.invalid(errors, &format!("must be `spec.version+\".\"+spec.group`: {required}"));
        }
    }
    if group.is_empty() && !version.is("v1") {
        let why = "only v1 may have an empty group and it better be legacy kube";
        group.required(errors, why);
    }
    group.rule_if_filled(errors, is_dns1123_subdomain);
    version.rule(errors, is_dns1035_label);
    for (name, max) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
        let priority = spec.get(name);
        if !(1..=max).contains(&priority.int_or_zero()) {
            let why = format!("must be positive and less than {max}");
            priority.invalid_value(errors, priority.int_or_zero(), &why);
        }
    }
    let (service, bundle) = (spec.get("service"), spec.get("caBundle"));
    let insecure = spec.get("insecureSkipTLSVerify");
    if !service.is_set() {
        if !bundle.is_empty() {
            let bytes = crate::validation::data::decoded_len(bundle.str());
            let why = "local APIServices may not have a caBundle";
            bundle.invalid_value(errors, format!("{bytes} bytes"), why);
        }
        if insecure.bool() {
            insecure.invalid(errors, "local APIServices may not have insecureSkipTLSVerify");
        }
        return;
    }
    service.get("namespace").require(errors);
    service.get("name").require(errors);
    let port = service.get("port");
    // Left out, it is 443.
    if let Some(wrong) = port.int().map(is_port_number).filter(|wrong| !wrong.is_empty()) {
        port.invalid(errors, &format!("port is not valid: {}", wrong.join(", ")));
    }
    if insecure.bool() && !bundle.is_empty() {
        insecure.invalid(errors, "may not be true if caBundle is present");
    }
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(object, errors);
    validate_status(object, old, errors);
}

pub(crate) fn validate_status(object: &Value, old: &Value, errors: &mut FieldErrors) {
    if object.get("status") != old.get("status") {
        let root = Field::root(object);
        let status = root.get("status");
        for condition in status.get("conditions").items() {
            if !matches!(condition.str_at(&["status"]), "True" | "False" | "Unknown") {
                condition.get("status").not_supported(errors, &["True", "False", "Unknown"]);
            }
        }
    }
}
