//! Validation of workloads.

use meta::{
    FieldErrors, Value,
    names::{is_long_name, is_short_name, name_is_path_segment},
};

use crate::{
    scheduling::pod_group::validation::{group_template, unique_names},
    validation::cursor::Field,
};

pub(crate) fn validate(object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let before = |name: &str| old.and_then(|old| old.at(&["spec", name]));
    let controller = spec.get("controllerRef");
    if old.is_some() && controller.value() != before("controllerRef") {
        controller.invalid(errors, crate::validation::cursor::IMMUTABLE);
    } else if controller.is_set() && old.is_none() {
        controller.get("apiGroup").rule_if_filled(errors, is_long_name);
        for name in ["kind", "name"] {
            controller.get(name).require_rule(errors, |text| name_is_path_segment(text, false));
        }
    }
    let templates = spec.get("podGroupTemplates");
    if old.is_some() {
        if templates.value() != before("podGroupTemplates") {
            templates.invalid(errors, crate::validation::cursor::IMMUTABLE);
        }
        if templates.is_empty() {
            templates.required(errors, "");
        }
        return;
    }
    if templates.is_empty() {
        return templates.required(errors, "");
    }
    if templates.len() > 8 {
        return errors.too_many(templates.path(), templates.len(), 8);
    }
    unique_names(&templates, errors);
    for template in templates.items() {
        template.get("name").require_rule(errors, is_short_name);
        group_template(&template, errors);
    }
}
