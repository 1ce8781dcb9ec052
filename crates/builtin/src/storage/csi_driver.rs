//! CSI drivers.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Cell, Column, Strategy, WriteContext};

use crate::defaulting::SetDefault;
use crate::printer_cells::{NONE, UNSET, boolean, flag, joined};

pub(crate) struct CsiDriver;

impl Strategy for CsiDriver {
    fn default(&self, driver: &mut Value) {
        let spec = driver.object_at_mut(&["spec"]);
        spec.set_default("attachRequired", true);
        spec.set_default("podInfoOnMount", false);
        spec.set_default("storageCapacity", false);
        spec.set_default("fsGroupPolicy", "ReadWriteOnceWithFSType");
        spec.set_default_if_empty("volumeLifecycleModes", vec!["Persistent"]);
        spec.set_default("requiresRepublish", false);
        spec.set_default("seLinuxMount", false);
    }

    fn prepare_for_create(&self, driver: &mut Value, cx: &WriteContext<'_>) {
        // Compat: the count goes on from what the client sent; without it, it starts with the first change.
        match cx.sent_generation {
            Some(sent) => driver.set_at(&["metadata", "generation"], sent),
            None => drop(driver.remove_at(&["metadata", "generation"])),
        }
    }

    fn validate(&self, driver: &Value, errors: &mut FieldErrors) {
        validation::validate(driver, errors);
    }

    fn validate_update(&self, driver: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(driver, old, errors);
    }

    fn warnings(&self, _subresource: &str, driver: &Value, old: Option<&Value>) -> Vec<String> {
        let requests = driver.at(&["spec", "tokenRequests"]);
        let changed = old.is_none_or(|old| old.at(&["spec", "tokenRequests"]) != requests);
        let is_set = driver.at(&["spec", "serviceAccountTokenInSecrets"]).is_some();
        if !changed || is_set || driver.items_at(&["spec", "tokenRequests"]).is_empty() {
            return Vec::new();
        }
        vec![
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to \
             true to prevent possible logging of tokens in volume attributes"
                .to_owned(),
        ]
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            boolean("AttachRequired", |driver, _| attach_required(driver)),
            boolean("PodInfoOnMount", |driver, _| flag(driver, &["spec", "podInfoOnMount"])),
            boolean("StorageCapacity", |driver, _| flag(driver, &["spec", "storageCapacity"])),
            Column::new("TokenRequests", |driver, _| audiences(driver).into()),
            boolean("RequiresRepublish", |driver, _| flag(driver, &["spec", "requiresRepublish"])),
            Column::new("Modes", |driver, _| modes(driver).into()),
            Column::AGE,
        ]
    }
}

fn attach_required(driver: &Value) -> Cell {
    let given = driver.at(&["spec", "attachRequired"]).and_then(Value::as_bool);
    Cell::Bool(given.unwrap_or(true))
}

/// The audiences of the tokens that the driver wants.
fn audiences(driver: &Value) -> String {
    let requests = driver.items_at(&["spec", "tokenRequests"]);
    if requests.is_empty() {
        return UNSET.to_owned();
    }
    let audiences: Vec<&str> =
        requests.iter().map(|request| request.str_at(&["audience"])).collect();
    audiences.join(",")
}

fn modes(driver: &Value) -> String {
    let modes = joined(driver, &["spec", "volumeLifecycleModes"]);
    if modes.is_empty() { NONE.to_owned() } else { modes }
}
