//! Certificate signing requests.

mod validation;

use meta::{FieldErrors, Value, time::Duration};
use registry::{Column, Strategy, WriteContext};

use self::validation::Part;
use crate::printer_cells::{NONE, condition, filled_or, text};

pub(crate) struct CertificateSigningRequest;

impl Strategy for CertificateSigningRequest {
    /// The requester's identity is the apiserver's to set: signers rely on it.
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

    fn validate(&self, request: &Value, errors: &mut FieldErrors) {
        validation::request(request, errors);
    }

    fn validate_update(&self, request: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::request_update(request, old, Part::Whole, errors);
    }

    fn validate_subresource(
        &self,
        subresource: &str,
        request: &Value,
        old: &Value,
        errors: &mut FieldErrors,
    ) {
        let part = if subresource == "approval" { Part::Approval } else { Part::Status };
        validation::request_update(request, old, part, errors);
    }

    /// `approval` writes the conditions, `status` the certificate and other conditions.
    fn prepare_for_subresource(
        &self,
        subresource: &str,
        request: &mut Value,
        old: &Value,
        cx: &WriteContext<'_>,
    ) {
        if let Some(spec) = old.get("spec") {
            request.set_at(&["spec"], spec.clone());
        }
        if subresource == "approval" {
            let conditions = request.remove_at(&["status", "conditions"]);
            match old.get("status") {
                Some(status) => request.set_at(&["status"], status.clone()),
                None => drop(request.remove_at(&["status"])),
            }
            match conditions {
                Some(conditions) => request.set_at(&["status", "conditions"], conditions),
                None => drop(request.remove_at(&["status", "conditions"])),
            }
        } else {
            for name in ["Approved", "Denied"] {
                keep_conditions(name, request, old);
            }
        }
        date_conditions(request, old, &cx.now.to_rfc3339());
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

fn conditions_mut(request: &mut Value) -> impl Iterator<Item = &mut Value> {
    request.at_mut(&["status", "conditions"]).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Conditions that are still there stay as they were. Those that come or go are left as they are: that
/// is refused later.
fn keep_conditions(name: &str, request: &mut Value, old: &Value) {
    let is_one = |condition: &Value| condition.str_at(&["type"]) == name;
    let before = old.items_at(&["status", "conditions"]).iter().filter(|own| is_one(own));
    let now = request.items_at(&["status", "conditions"]).iter().filter(|own| is_one(own));
    if before.clone().count() == now.count() {
        for (condition, before) in
            conditions_mut(request).filter(|condition| is_one(condition)).zip(before)
        {
            *condition = before.clone();
        }
    }
}

/// When each condition was set, where the client doesn't say.
fn date_conditions(request: &mut Value, old: &Value, now: &str) {
    for condition in conditions_mut(request) {
        let missing =
            |condition: &Value, field: &str| condition.get(field).is_none_or(Value::is_null);
        if missing(condition, "lastUpdateTime") {
            condition.set_at(&["lastUpdateTime"], now);
        }
        if missing(condition, "lastTransitionTime") {
            let same = |other: &&Value| {
                ["type", "status"].iter().all(|part| other.get(part) == condition.get(part))
                    && !missing(other, "lastTransitionTime")
            };
            let before = old.items_at(&["status", "conditions"]).iter().find(same);
            let time = before.map_or(now, |before| before.str_at(&["lastTransitionTime"]));
            let time = time.to_owned();
            condition.set_at(&["lastTransitionTime"], time);
        }
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
