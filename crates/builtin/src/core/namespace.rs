//! Namespaces: a label with their own name, a phase, and a finalizer under `spec` that holds them
//! until they are empty.

mod validation;

use crate::defaulting::SetDefault;
use meta::{FieldErrors, Value, value};
use registry::{Cell, Column, Strategy, WriteContext, keep_all_but_status};

pub(crate) struct Namespace;

const NAME_LABEL: &str = "kubernetes.io/metadata.name";
const FINALIZER: &str = "kubernetes";

impl Strategy for Namespace {
    fn default(&self, namespace: &mut Value) {
        let name = namespace.str_at(&["metadata", "name"]).to_owned();
        if !name.is_empty() {
            namespace.set_at(&["metadata", "labels", NAME_LABEL], name);
        }
        namespace.object_at_mut(&[]).part("status").set_default_if_empty("phase", "Active");
    }

    fn prepare_for_create(&self, namespace: &mut Value, _cx: &WriteContext<'_>) {
        namespace.set_at(&["status"], value!({"phase": "Active"}));
        let have = namespace.items_at(&["spec", "finalizers"]);
        if !have.iter().any(|name| name.as_str() == Some(FINALIZER)) {
            let mut finalizers = have.to_vec();
            finalizers.push(Value::from(FINALIZER));
            namespace.set_at(&["spec", "finalizers"], Value::Array(finalizers));
        }
    }

    fn prepare_for_update(&self, namespace: &mut Value, old: &Value, _cx: &WriteContext<'_>) {
        // Only `/finalize` changes them.
        let finalizers = Value::Array(old.items_at(&["spec", "finalizers"]).to_vec());
        namespace.set_at(&["spec", "finalizers"], finalizers);
    }

    fn prepare_for_subresource(
        &self,
        subresource: &str,
        namespace: &mut Value,
        old: &Value,
        _cx: &WriteContext<'_>,
    ) {
        if subresource == "finalize" {
            match old.get("status") {
                Some(status) => namespace.set_at(&["status"], status.clone()),
                None => drop(namespace.remove_at(&["status"])),
            }
        } else {
            keep_all_but_status(subresource, namespace, old);
        }
    }

    fn holds_deletion(&self, namespace: &Value) -> bool {
        !namespace.items_at(&["spec", "finalizers"]).is_empty()
    }

    fn begin_deletion(&self, namespace: &mut Value) {
        namespace.set_at(&["status", "phase"], "Terminating");
        // Compat: there is no grace for namespaces, not even none.
        namespace.remove_at(&["metadata", "deletionGracePeriodSeconds"]);
    }

    fn validate(&self, namespace: &Value, errors: &mut FieldErrors) {
        validation::validate(namespace, errors);
    }

    fn validate_subresource(
        &self,
        subresource: &str,
        namespace: &Value,
        _old: &Value,
        errors: &mut FieldErrors,
    ) {
        validation::validate_subresource(subresource, namespace, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Status", |namespace, _| {
                Cell::text(namespace.str_at(&["status", "phase"]))
            }),
            Column::AGE,
        ]
    }
}
