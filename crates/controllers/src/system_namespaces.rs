//! kube-apiserver's system-namespaces-controller: recreates the system namespaces when a client deletes
//! one.

use std::{sync::Arc, time::Duration};

use crate::{Api, Informer, InformerEvent, SYSTEM_NAMESPACES, Target, get_or_create, namespace};

pub struct SystemNamespaces {
    pub api: Arc<dyn Api>,
}

/// Delay before a failed create is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);

impl SystemNamespaces {
    /// Runs until the server stops. `events` are deletions of namespaces.
    pub async fn run(self, mut events: impl Informer) {
        let target = Target::cluster("", "v1", "namespaces");
        while let Some(change) = events.next().await {
            if matches!(&change, InformerEvent::Object(seen) if !SYSTEM_NAMESPACES.contains(&seen.name.as_str()))
            {
                continue;
            }
            for name in SYSTEM_NAMESPACES {
                while let Err(error) = get_or_create(&*self.api, &target, &namespace(name)).await {
                    tracing::warn!(name, "cannot recreate the namespace yet: {error}");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }
}
