//! Cluster trust bundles.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::printer_cells::{NONE, filled_or};

pub(crate) struct ClusterTrustBundle;

impl Strategy for ClusterTrustBundle {
    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        validation::bundle(object, None, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::bundle(object, Some(old), errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("SignerName", |bundle, _| filled_or(bundle, &["spec", "signerName"], NONE)),
        ]
    }
}
