//! A device class: selectors and configurations that claims refer to by its name.

use meta::{FieldErrors, Value};

use crate::validation::{
    cursor::Field,
    devices::{LIST_MAX, configuration, each, selectors},
    pod_spec::is_extended_resource,
};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    selectors(&spec.get("selectors"), errors);
    each(&spec.get("config"), LIST_MAX, errors, |config, errors| configuration(&config, errors));
    let name = spec.get("extendedResourceName");
    if name.is_set() && !is_extended_resource(name.str()) {
        name.invalid(errors, "must be a valid extended resource name");
    }
}
