//! Open files of the process: connections take most of them, and leave some for the store, for log
//! files and for calls to other servers.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files as far as the process may, as Go's runtime does, and returns it; None:
/// there is none.
pub fn raise_limit() -> Option<u64> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // A failure leaves the limit as it is, and connections are counted against that one.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    getrlimit(Resource::Nofile).current
}

/// How many connections may be open under a limit of open files, and at most `wanted`.
pub fn connections_max(limit: Option<u64>, wanted: usize) -> usize {
    let Some(limit) = limit else { return wanted };
    let reserved = (limit / 4).clamp(RESERVED_MIN, RESERVED_MAX);
    let left = usize::try_from(limit.saturating_sub(reserved)).unwrap_or(wanted);
    // A server without room for connections is of no use; the store may then run out of files.
    left.clamp(CONNECTIONS_MIN, wanted)
}

/// Files that connections leave to others: segments of the log, audit logs, webhooks, etcd, kubelets.
const RESERVED_MIN: u64 = 64;
const RESERVED_MAX: u64 = 4096;
const CONNECTIONS_MIN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_others() {
        let cases = [
            (None, 32_768),
            (Some(1 << 20), 32_768),
            (Some(32_768), 28_672),
            (Some(1024), 768),
            (Some(256), 192),
            (Some(64), 8),
            (Some(0), 8),
        ];
        for (limit, expected) in cases {
            assert_eq!(connections_max(limit, 32_768), expected, "{limit:?}");
        }
    }

    #[test]
    fn the_limit_is_raised_to_what_is_allowed() {
        let raised = raise_limit();
        let now = getrlimit(Resource::Nofile);
        assert_eq!((raised, now.current), (now.maximum, now.maximum));
    }
}
