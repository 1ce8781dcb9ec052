//! Cluster trust bundles.

use registry::{Column, Strategy};

use crate::format::{NONE, filled_or};

pub(crate) struct ClusterTrustBundle;

impl Strategy for ClusterTrustBundle {
    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("SignerName", |bundle, _| filled_or(bundle, &["spec", "signerName"], NONE)),
        ]
    }
}
