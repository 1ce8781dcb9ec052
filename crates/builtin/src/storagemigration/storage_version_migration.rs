//! Storage version migrations.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::printer_cells::text;

pub(crate) struct StorageVersionMigration;

impl Strategy for StorageVersionMigration {
    fn validate(&self, migration: &Value, errors: &mut FieldErrors) {
        validation::validate(migration, errors);
    }

    fn validate_update(&self, migration: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(migration, old, errors);
    }

    fn validate_subresource(
        &self,
        _subresource: &str,
        migration: &Value,
        old: &Value,
        errors: &mut FieldErrors,
    ) {
        validation::validate_status(migration, old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            // Compat: unlike everywhere else, the format does not say that this is the name.
            Column::new("Name", |migration, _| text(migration, &["metadata", "name"])),
            Column::new("Resource", |migration, _| resource(migration).into()),
            Column::new("Status", |migration, _| status(migration).into()),
        ]
    }
}

/// `deployments.apps`
fn resource(migration: &Value) -> String {
    let part = |field| migration.str_at(&["spec", "resource", field]);
    match part("group") {
        "" => part("resource").to_owned(),
        group => format!("{}.{group}", part("resource")),
    }
}

/// The last condition that is true and describes the progress of the migration.
fn status(migration: &Value) -> &str {
    let conditions = migration.items_at(&["status", "conditions"]).iter();
    let holding = conditions.filter(|condition| condition.str_at(&["status"]) == "True");
    let mut states = holding.map(|condition| condition.str_at(&["type"])).rev();
    states.find(|name| matches!(*name, "Running" | "Succeeded" | "Failed")).unwrap_or("Unknown")
}
