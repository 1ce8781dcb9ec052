//! kube-controller-manager's csrcleaner-controller: deletes CertificateSigningRequests, denied, failed
//! and issued ones after an hour, pending ones after a day.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use meta::{Value, time::Time, value};
use x509_parser::pem::Pem;

use crate::{ApiClient, ResourceRef};

pub struct CsrCleaner {
    pub api: Arc<dyn ApiClient>,
}

const POLL_INTERVAL: Duration = Duration::from_hours(1);
const DECIDED_SECONDS: i64 = 3600;
const PENDING_SECONDS: i64 = 24 * 3600;

impl CsrCleaner {
    /// Runs until the server stops.
    pub async fn run(self) {
        loop {
            self.clean(Time::now()).await;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn clean(&self, now: Time) {
        let target =
            ResourceRef::cluster("certificates.k8s.io", "v1", "certificatesigningrequests");
        let requests = self.api.list(&target).await.unwrap_or_default();
        for request in requests.iter().filter(|request| is_expired(request, now)) {
            let named = target.clone().named(request.str_at(&["metadata", "name"]));
            let uid = request.str_at(&["metadata", "uid"]);
            let options = value!({"preconditions": {"uid": (uid)}});
            if let Err(error) = self.api.delete(&named, &options).await {
                tracing::debug!(name = named.name, "cannot clean up the request yet: {error}");
            }
        }
    }
}

fn is_expired(request: &Value, now: Time) -> bool {
    let older = |text: &str, seconds: i64| {
        let since = Time::parse(text).ok().filter(|since| !since.is_zero());
        since.is_some_and(|since| now.unix_seconds() - since.unix_seconds() > seconds)
    };
    let conditions = request.items_at(&["status", "conditions"]);
    if conditions.is_empty() {
        return older(request.str_at(&["metadata", "creationTimestamp"]), PENDING_SECONDS);
    }
    let certificate = request.str_at(&["status", "certificate"]);
    conditions.iter().any(|condition| {
        let since = condition.str_at(&["lastUpdateTime"]);
        match condition.str_at(&["type"]) {
            "Denied" | "Failed" => older(since, DECIDED_SECONDS),
            "Approved" if certificate.is_empty() => older(since, PENDING_SECONDS),
            "Approved" => older(since, DECIDED_SECONDS) || has_expired(certificate, now),
            _ => false,
        }
    })
}

/// Whether the first certificate, PEM in base64, has expired.
fn has_expired(certificate: &str, now: Time) -> bool {
    let Ok(pem) = BASE64.decode(certificate) else { return false };
    let Some(Ok(block)) = Pem::iter_from_buffer(&pem).next() else { return false };
    let not_after = block.parse_x509().map(|parsed| parsed.validity().not_after.timestamp());
    not_after.is_ok_and(|not_after| now.unix_seconds() > not_after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeClient;

    fn request(name: &str, condition: Option<&str>, since: &str, certificate: &str) -> Value {
        let mut request = value!({
            "metadata": {"name": (name), "uid": "u", "creationTimestamp": (since)},
        });
        if let Some(condition) = condition {
            let condition = value!([{"type": (condition), "lastUpdateTime": (since)}]);
            request.set_at(&["status", "conditions"], condition);
        }
        if !certificate.is_empty() {
            request.set_at(&["status", "certificate"], certificate);
        }
        request
    }

    #[tokio::test]
    async fn decided_requests_are_deleted_after_an_hour_and_pending_ones_after_a_day() {
        let (hours_1, hours_2, hours_25) =
            ("2026-01-02T11:00:01Z", "2026-01-02T10:00:00Z", "2026-01-01T11:00:00Z");
        let cases = [
            (None, hours_2, "", false),
            (None, hours_25, "", true),
            (Some("Denied"), hours_1, "", false),
            (Some("Denied"), hours_2, "", true),
            (Some("Failed"), hours_2, "", true),
            (Some("Approved"), hours_2, "", false),
            (Some("Approved"), hours_25, "", true),
            (Some("Approved"), hours_1, "bm90IFBFTQ==", false),
            (Some("Approved"), hours_2, "bm90IFBFTQ==", true),
        ];
        let fake = FakeClient::new(cases.iter().enumerate().map(|(at, case)| {
            ("certificatesigningrequests", request(&format!("r{at}"), case.0, case.1, case.2))
        }));
        let cleaner = CsrCleaner { api: fake.clone() };
        cleaner.clean(Time::parse("2026-01-02T12:00:00Z").unwrap()).await;
        let deleted = fake.deleted();
        for (at, case) in cases.iter().enumerate() {
            let is_gone = deleted.iter().any(|(name, _)| *name == format!("r{at}"));
            assert_eq!(is_gone, case.3, "{case:?}");
        }
    }
}
