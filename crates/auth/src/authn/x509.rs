//! Client certificates: CN is the user, O the groups.

use meta::{Str, User};

/// A certificate whose chain, time and usage were verified in the TLS layer.
#[derive(Clone, Copy, Debug)]
pub struct Certificate<'a> {
    pub common_name: &'a str,
    pub organizations: &'a [String],
    /// From the RDN that Kubernetes reserves for it; empty where there is none.
    pub uid: &'a str,
    /// `X509SHA256=…`, so that audit can tell certificates of one user apart.
    pub credential_id: &'a str,
}

impl Certificate<'_> {
    pub fn user(&self) -> User {
        let extra = if self.credential_id.is_empty() {
            Vec::new()
        } else {
            let key = Str::new_static("authentication.kubernetes.io/credential-id");
            vec![(key, vec![Str::new(self.credential_id)])]
        };
        User {
            name: Str::new(self.common_name),
            uid: Str::new(self.uid),
            groups: self.organizations.iter().map(Str::new).collect(),
            extra,
        }
    }
}
