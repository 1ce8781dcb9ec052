//! `--endpoint-reconciler-type`.

use crate::flags::Parsed;

/// How the endpoints of service default/kubernetes are maintained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReconcilerType {
    /// Each server renews a lease; the endpoints are all leases.
    Lease,
    /// Each server adds itself; there are as many endpoints as `--apiserver-count` says.
    MasterCount(usize),
    /// This server does not write them.
    None,
}

impl ReconcilerType {
    pub(super) fn from_flags(parsed: &Parsed) -> Self {
        match parsed.text("endpoint-reconciler-type").as_str() {
            "none" => Self::None,
            "master-count" => {
                let count = usize::try_from(parsed.int("apiserver-count"));
                Self::MasterCount(count.unwrap_or(1).max(1))
            }
            _ => Self::Lease,
        }
    }
}
