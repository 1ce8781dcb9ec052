//! Controller revisions: earlier states of daemon sets and stateful sets.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::printer_cells::{NONE, number, with_group};

pub(crate) struct ControllerRevision;

impl Strategy for ControllerRevision {
    fn validate(&self, revision: &Value, errors: &mut FieldErrors) {
        validation::validate(revision, errors);
    }

    fn validate_update(&self, revision: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(revision, old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Controller", |revision, _| controller(revision).into()),
            Column::new("Revision", |revision, _| number(revision, &["revision"])),
            Column::AGE,
        ]
    }
}

/// `statefulset.apps/web`: the owner that controls the revision.
fn controller(revision: &Value) -> String {
    let owners = revision.items_at(&["metadata", "ownerReferences"]).iter();
    let mut controllers = owners.filter(|owner| owner.bool_at(&["controller"]));
    let Some(owner) = controllers.next() else { return NONE.to_owned() };
    let api_version = owner.str_at(&["apiVersion"]);
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    format!("{}/{}", with_group(owner.str_at(&["kind"]), group), owner.str_at(&["name"]))
}
