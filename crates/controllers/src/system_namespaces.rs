//! kube-apiserver's system-namespaces-controller: recreates the system namespaces when a client deletes
//! one.

use std::{sync::Arc, time::Duration};

use crate::{
    ApiClient, Informer, InformerEvent, ResourceRef, SYSTEM_NAMESPACES, get_or_create, namespace,
};

pub struct SystemNamespaces {
    pub api: Arc<dyn ApiClient>,
}

/// Delay before a failed create is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);

impl SystemNamespaces {
    /// Runs until the server stops. `events` are deletions of namespaces.
    pub async fn run(self, mut events: impl Informer) {
        let target = ResourceRef::cluster("", "v1", "namespaces");
        loop {
            for name in SYSTEM_NAMESPACES {
                while let Err(error) = get_or_create(&*self.api, &target, &namespace(name)).await {
                    tracing::warn!(name, "cannot create the namespace yet: {error}");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
            let is_other = |change: &InformerEvent| matches!(change, InformerEvent::Object(seen) if !SYSTEM_NAMESPACES.contains(&seen.name.as_str()));
            loop {
                match events.next().await {
                    None => return,
                    Some(change) if is_other(&change) => {}
                    Some(_) => break,
                }
            }
        }
    }
}
