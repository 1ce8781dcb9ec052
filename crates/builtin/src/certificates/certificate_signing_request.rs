//! Certificate signing requests.

use meta::{Value, time::Duration};
use registry::{Column, Strategy};

use crate::format::{NONE, condition, filled_or, text};

pub(crate) struct CertificateSigningRequest;

impl Strategy for CertificateSigningRequest {
    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::AGE,
            Column::new("SignerName", |request, _| {
                filled_or(request, &["spec", "signerName"], NONE)
            }),
            Column::new("Requestor", |request, _| text(request, &["spec", "username"])),
            Column::new("RequestedDuration", |request, _| requested_duration(request).into()),
            Column::new("Condition", |request, _| state(request).into()),
        ]
    }
}

fn requested_duration(request: &Value) -> String {
    let seconds = request.i64_at(&["spec", "expirationSeconds"]);
    seconds.map_or(NONE.to_owned(), |seconds| Duration::from_secs(seconds).human())
}

/// `Approved,Issued`. A denial outweighs an approval.
fn state(request: &Value) -> String {
    let has = |name| condition(request, name).is_some();
    let mut state = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !request.str_at(&["status", "certificate"]).is_empty() {
        state.push_str(",Issued");
    }
    state
}
