//! Maps etcd's errors to [`StoreError`].

use store::StoreError;
use tonic::{Code, Status};

/// `Compacted` and `Future` come without revisions, which etcd does not report; the caller looks
/// them up.
pub(crate) fn store_error(status: &Status) -> StoreError {
    let message = status.message();
    match message {
        COMPACTED => StoreError::Compacted { oldest: 0 },
        FUTURE => StoreError::Future { asked: 0, current: 0 },
        "etcdserver: request is too large" => StoreError::TooLarge { bytes: 0 },
        NO_SPACE => StoreError::Full(NO_SPACE.to_owned()),
        "etcdserver: corrupt cluster" => StoreError::Corrupt(message.to_owned()),
        // Compat: through kube-apiserver, clients see etcd's messages unchanged, and gRPC's with
        // their code.
        _ if message.starts_with("etcdserver: ") => StoreError::Unavailable(message.to_owned()),
        _ => StoreError::Unavailable(format!(
            "rpc error: code = {:?} desc = {message}",
            status.code()
        )),
    }
}

const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";
const FUTURE: &str = "etcdserver: mvcc: required revision is a future revision";
const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";

/// Whether the lease of a write has expired; the write can be retried with another one.
pub(crate) fn is_lease_lost(status: &Status) -> bool {
    status.message() == "etcdserver: requested lease not found"
}

/// Whether another member may succeed.
pub(crate) fn is_member_failure(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Aborted => true,
        // What a broken connection is reported as. etcd itself hardly uses these codes.
        Code::Unknown | Code::Internal => !status.message().starts_with("etcdserver: "),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcds_error_messages_are_passed_on_unchanged() {
        let cases = [
            (Code::OutOfRange, COMPACTED, COMPACTED),
            (Code::OutOfRange, FUTURE, FUTURE),
            (
                Code::InvalidArgument,
                "etcdserver: request is too large",
                "etcdserver: request is too large",
            ),
            (Code::ResourceExhausted, NO_SPACE, NO_SPACE),
            (Code::Unavailable, "etcdserver: request timed out", "etcdserver: request timed out"),
            (
                Code::Unavailable,
                "tcp connect error",
                "rpc error: code = Unavailable desc = tcp connect error",
            ),
        ];
        for (code, message, expected) in cases {
            assert_eq!(store_error(&Status::new(code, message)).to_string(), expected);
        }
    }

    #[test]
    fn only_failures_of_a_member_cause_failover() {
        let cases = [
            (Code::Unavailable, "etcdserver: leader changed", true),
            (Code::DeadlineExceeded, "", true),
            (Code::Unknown, "h2 protocol error", true),
            (Code::Unknown, "etcdserver: duplicate key given in txn request", false),
            (Code::OutOfRange, COMPACTED, false),
            (Code::ResourceExhausted, NO_SPACE, false),
            (Code::Unauthenticated, "etcdserver: invalid auth token", false),
        ];
        for (code, message, expected) in cases {
            assert_eq!(is_member_failure(&Status::new(code, message)), expected, "{message}");
        }
    }
}
