//! The identity of this API server, and the Lease that says it is there.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use controllers::IdentityLease;
use sha2::{Digest as _, Sha256};

use crate::post_start_hooks::{HookContext, first_sync};

/// The hook that takes the lease, and the one that gives it up.
#[derive(Clone, Default)]
pub(super) struct IdentityLeaseHooks(Arc<OnceLock<Arc<IdentityLease>>>);

impl IdentityLeaseHooks {
    /// Takes the lease, and starts the controller that renews it.
    pub(super) async fn start(self, cx: HookContext) -> Result<(), String> {
        if cx.kinds_of("coordination.k8s.io", &["Lease"]).is_empty() {
            return Ok(());
        }
        let has_peers = cx.options.feature_gates.enabled("UnknownVersionInteroperabilityProxy");
        let peer_address = has_peers.then(|| {
            let (address, port) = cx.options.peer_address(cx.port);
            SocketAddr::new(address, port).to_string()
        });
        let lease = IdentityLease::new(cx.api.clone(), server_identity(), hostname(), peer_address);
        let lease = Arc::new(lease);
        cx.after("start-system-namespaces-controller").await;
        first_sync(async || lease.take().await).await;
        drop(self.0.set(lease.clone()));
        cx.tasks.restarting("apiserver-identity-lease", move || {
            let lease = lease.clone();
            async move { lease.run().await }
        });
        Ok(())
    }

    /// Deletes the lease, so that no other server takes this one for running.
    pub(super) async fn stop(self) -> Result<(), String> {
        let Some(lease) = self.0.get() else { return Ok(()) };
        let deleted = tokio::time::timeout(DELETE_TIMEOUT, lease.stop()).await;
        deleted.map_err(|_| "the store does not answer".to_owned())?.map_err(|e| e.to_string())
    }
}

/// A store that does not answer must not block the shutdown.
const DELETE_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn hostname() -> String {
    serve::pki::hostname().unwrap_or_else(|| "localhost".to_owned())
}

/// The identity of this API server, as leases and metrics have it.
pub(crate) fn server_identity() -> String {
    identity(&hostname())
}

/// The name of the identity lease: `apiserver-` and a hash of the hostname. It is kube-apiserver's hash,
/// so that Pintle takes over the lease of a kube-apiserver on the same machine.
fn identity(hostname: &str) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut hashed = Sha256::new();
    for part in [hostname, "kube-apiserver"] {
        hashed.update((part.len() as u16).to_be_bytes());
        hashed.update(part);
    }
    let hash = hashed.finalize();
    let mut text = "apiserver-".to_owned();
    let (mut bits, mut held) = (0u32, 0u32);
    for byte in &hash[..16] {
        held = (held << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(ALPHABET[(held >> bits) as usize & 31]));
        }
    }
    if bits > 0 {
        text.push(char::from(ALPHABET[(held << (5 - bits)) as usize & 31]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_kube_apiservers_hash_of_the_hostname() {
        // The lease of kube-apiserver on a machine of this name.
        assert_eq!(identity("vm"), "apiserver-wlv32tlttr4jl3gtroqexyxapa");
    }
}
