//! `Audit-Id`: one name for a request in every log.

use std::cell::RefCell;

use http::HeaderMap;
use uuid::Uuid;

/// The client's, as far as it is kept, or a new one.
pub(crate) fn audit_id(headers: &HeaderMap) -> String {
    match headers.get("audit-id").and_then(|value| value.to_str().ok()) {
        Some(id) if !id.is_empty() => id[..id.len().min(AUDIT_ID_BYTES_MAX)].to_owned(),
        _ => new_id(),
    }
}

/// A random UUID. The system is asked for the randomness of many at a time: each request needs one, and a
/// system call for it costs as much as authorization.
fn new_id() -> String {
    thread_local! {
        static RANDOM: RefCell<RandomIds> = const { RefCell::new(RandomIds { bytes: [0; BATCH_BYTES], used: BATCH_BYTES }) };
    }
    RANDOM.with_borrow_mut(RandomIds::next).hyphenated().to_string()
}

struct RandomIds {
    bytes: [u8; BATCH_BYTES],
    used: usize,
}

const ID_BYTES: usize = 16;
const BATCH_BYTES: usize = 128 * ID_BYTES;

impl RandomIds {
    fn next(&mut self) -> Uuid {
        if self.used == BATCH_BYTES {
            if getrandom::fill(&mut self.bytes).is_err() {
                return Uuid::new_v4();
            }
            self.used = 0;
        }
        let mut id = [0; ID_BYTES];
        id.copy_from_slice(&self.bytes[self.used..self.used + ID_BYTES]);
        self.used += ID_BYTES;
        uuid::Builder::from_random_bytes(id).into_uuid()
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
        // More than one batch of randomness has.
        let made: std::collections::HashSet<String> =
            (0..1000).map(|_| audit_id(&HeaderMap::new())).collect();
        assert_eq!(made.len(), 1000, "no id is made twice");
        assert!(made.iter().all(|id| id.len() == 36 && id.as_bytes()[14] == b'4'));
    }
}
