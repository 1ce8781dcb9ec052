//! `Audit-Id`: one name for a request in every log.

use http::HeaderMap;

/// The client's, as far as it is kept, or a new one.
pub(crate) fn audit_id(headers: &HeaderMap) -> String {
    match headers.get("audit-id").and_then(|value| value.to_str().ok()) {
        Some(id) if !id.is_empty() => id[..id.len().min(AUDIT_ID_BYTES_MAX)].to_owned(),
        _ => uuid::Uuid::new_v4().to_string(),
    }
}

/// What kube-apiserver logs of it; it echoes the rest, which serves no client. `to_str` above lets
/// only ASCII through, so a byte is a character.
const AUDIT_ID_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_clients_id_is_cut_and_a_missing_one_is_made() {
        let long = "x".repeat(60_000);
        let cases = [("", 36), ("a", 1), (long.as_str(), AUDIT_ID_BYTES_MAX)];
        for (given, length) in cases {
            let mut headers = HeaderMap::new();
            headers.insert("audit-id", HeaderValue::from_str(given).expect("a header"));
            assert_eq!(audit_id(&headers).len(), length, "{given:.10}");
        }
        assert_eq!(audit_id(&HeaderMap::new()).len(), 36);
    }
}
