//! Certificate signing requests.

use meta::{Value, time::Duration};
use registry::{Column, Strategy, WriteContext};

use crate::format::{NONE, condition, filled_or, text};

pub(crate) struct CertificateSigningRequest;

impl Strategy for CertificateSigningRequest {
    /// Who asks is not for the client to say: signers rely on it.
    fn prepare_for_create(&self, request: &mut Value, cx: &WriteContext<'_>) {
        for field in ["username", "uid", "groups", "extra"] {
            request.remove_at(&["spec", field]);
        }
        let user = cx.user;
        for (field, text) in [("username", &user.name), ("uid", &user.uid)] {
            if !text.is_empty() {
                request.set_at(&["spec", field], text.clone());
            }
        }
        if !user.groups.is_empty() {
            request.set_at(&["spec", "groups"], user.groups.clone());
        }
        for (key, values) in &user.extra {
            request.set_at(&["spec", "extra", key], values.clone());
        }
    }

    /// A request stays as it was made; only its subresources change.
    fn prepare_for_update(&self, request: &mut Value, old: &Value, _cx: &WriteContext<'_>) {
        if let Some(spec) = old.get("spec") {
            request.set_at(&["spec"], spec.clone());
        }
    }

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
