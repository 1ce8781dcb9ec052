//! `Audit-Id`: one name for a request in every log.

use http::HeaderMap;

/// The client's, or a new one.
pub(crate) fn audit_id(headers: &HeaderMap) -> String {
    match headers.get("audit-id").and_then(|value| value.to_str().ok()) {
        Some(id) if !id.is_empty() => id.to_owned(),
        _ => uuid::Uuid::new_v4().to_string(),
    }
}
