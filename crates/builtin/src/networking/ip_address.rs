//! IP addresses that services hold.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::printer_cells::{NONE, with_group};

pub(crate) struct IpAddress;

impl Strategy for IpAddress {
    fn validate(&self, address: &Value, errors: &mut FieldErrors) {
        validation::validate(address, errors);
    }

    fn validate_update(&self, address: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::validate_update(address, old, errors);
    }

    fn columns(&self) -> Vec<Column> {
        // Compat: the age is in the rows alone.
        vec![
            Column::NAME,
            Column::new("ParentRef", |address, _| parent(address).into()),
            Column::AGE.undefined(),
        ]
    }
}

/// `services/default/kubernetes`
fn parent(address: &Value) -> String {
    let Some(parent) = address.at(&["spec", "parentRef"]).filter(|parent| !parent.is_null()) else {
        return NONE.to_owned();
    };
    let mut text = with_group(parent.str_at(&["resource"]), parent.str_at(&["group"]));
    for part in [parent.str_at(&["namespace"]), parent.str_at(&["name"])] {
        if !part.is_empty() {
            text = format!("{text}/{part}");
        }
    }
    text
}
