//! The leases by which API servers of one store find each other: `/registry/peerserverleases/`.

use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use builtin::{PeerLeases, RestStorageProvider};

use super::server_identity;
use crate::post_start_hooks::HookContext;

/// The hook that starts to renew the lease, and the one that deletes it.
#[derive(Clone)]
pub(super) struct PeerEndpointHooks {
    /// None: no other server shares the store.
    leases: Option<Arc<PeerLeases>>,
    stopped: Arc<OnceLock<()>>,
}

impl PeerEndpointHooks {
    pub(super) fn new(rest_storage: &RestStorageProvider) -> Self {
        Self { leases: rest_storage.peer_leases(), stopped: Arc::default() }
    }

    pub(super) fn start(self, cx: HookContext) {
        let Some(leases) = self.leases else { return };
        let (address, port) = cx.options.peer_address(cx.port);
        let stopped = self.stopped;
        cx.tasks.restarting("peer-endpoint-reconciler-controller", move || {
            renew(leases.clone(), address, port, stopped.clone())
        });
    }

    pub(super) async fn stop(self) -> Result<(), String> {
        let Some(leases) = self.leases else { return Ok(()) };
        let _ = self.stopped.set(());
        let removed = tokio::time::timeout(REMOVE_TIMEOUT, leases.leave(&server_identity())).await;
        let removed = removed.map_err(|_| "the store does not answer".to_owned())?;
        removed.map_err(|error| error.to_string())
    }
}

async fn renew(leases: Arc<PeerLeases>, address: IpAddr, port: u16, stopped: Arc<OnceLock<()>>) {
    let identity = server_identity();
    while stopped.get().is_none() {
        if let Err(error) = leases.renew(&identity, address, port).await {
            tracing::warn!("cannot renew the lease for other API servers yet: {error}");
        }
        tokio::time::sleep(RENEW_INTERVAL).await;
    }
}

/// Compat: two thirds of the time that a lease lasts.
const RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// A store that does not answer must not block the shutdown.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(2);
