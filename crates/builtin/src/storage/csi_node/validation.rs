//! Validation of CSI nodes.

use std::collections::BTreeSet;

use meta::{FieldErrors, Value, names::is_qualified_name};

use crate::validation::{
    cursor::{Field, IMMUTABLE},
    pod_spec::volume_sources::csi_driver_name,
};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let mut names = BTreeSet::new();
    for driver in spec.get("drivers").items() {
        let (name, id) = (driver.get("name"), driver.get("nodeID"));
        csi_driver_name(&name, errors);
        id.require(errors);
        if id.len() > 256 {
            id.invalid(errors, "must be 256 characters or less");
        }
        driver.get("allocatable").get("count").non_negative(errors);
        if !names.insert(name.str().to_owned()) {
            name.duplicate(errors);
        }
        let mut keys = BTreeSet::new();
        // Compat: upstream doesn't say that it is about `topologyKeys`.
        for key in driver.get("topologyKeys").items() {
            if key.is_empty() {
                driver.required(errors, "");
            }
            if !keys.insert(key.str().to_owned()) {
                errors.duplicate(driver.path(), key.str());
            }
            driver.with(key.value()).rule(errors, is_qualified_name);
        }
    }
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(object, errors);
    let root = Field::root(object);
    let spec = root.get("spec");
    let without_count = |driver: &Value| {
        let mut driver = driver.clone();
        driver.remove_at(&["allocatable"]);
        driver
    };
    for before in old.items_at(&["spec", "drivers"]) {
        for driver in object.items_at(&["spec", "drivers"]) {
            if driver.get("name") == before.get("name")
                && without_count(driver) != without_count(before)
            {
                let text = |name: &str| meta::json::to_string(&driver.str_at(&[name]).into());
                let keys = driver.get("topologyKeys");
                let shown = format!(
                    r#"{{"Name":{},"NodeID":{},"TopologyKeys":{},"Allocatable":null}}"#,
                    text("name"),
                    text("nodeID"),
                    keys.map_or_else(|| "null".to_owned(), meta::json::to_string)
                );
                spec.get("drivers").invalid_shown(errors, &shown, IMMUTABLE);
            }
        }
    }
}
