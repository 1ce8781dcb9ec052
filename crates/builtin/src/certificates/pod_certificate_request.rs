//! Pod certificate requests.

use meta::Value;
use registry::{Column, Strategy};

use crate::format::{labels, text};

pub(crate) struct PodCertificateRequest;

impl Strategy for PodCertificateRequest {
    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("PodName", |request, _| text(request, &["spec", "podName"])),
            Column::new("ServiceAccountName", |request, _| {
                text(request, &["spec", "serviceAccountName"])
            }),
            Column::new("NodeName", |request, _| text(request, &["spec", "nodeName"])),
            Column::new("SignerName", |request, _| text(request, &["spec", "signerName"])),
            Column::new("State", |request, _| state(request).into()),
            Column::new("UnverifiedUserAnnotations", |request, _| {
                labels(request, &["spec", "unverifiedUserAnnotations"])
            }),
        ]
    }
}

/// The last condition that decides; validation sees to it that there is only one.
fn state(request: &Value) -> &str {
    let conditions = request.items_at(&["status", "conditions"]).iter();
    let types = conditions.map(|condition| condition.str_at(&["type"]));
    types.rev().find(|name| matches!(*name, "Issued" | "Denied" | "Failed")).unwrap_or("Pending")
}
