//! The namespaces that the system lives in: whoever deletes one gets a new one.

use std::{sync::Arc, time::Duration};

use crate::{Api, Informer, InformerEvent, SYSTEM_NAMESPACES, Target, get_or_create, namespace};

pub struct SystemNamespaces {
    pub api: Arc<dyn Api>,
}

/// When something failed, it is tried again this much later.
const RETRY_DELAY: Duration = Duration::from_secs(1);

impl SystemNamespaces {
    /// Works until the server stops. `changes` are of namespaces that are gone.
    pub async fn run(self, mut changes: impl Informer) {
        let target = Target::cluster("", "v1", "namespaces");
        while let Some(change) = changes.next().await {
            if matches!(&change, InformerEvent::Object(seen) if !SYSTEM_NAMESPACES.contains(&seen.name.as_str()))
            {
                continue;
            }
            for name in SYSTEM_NAMESPACES {
                while let Err(error) = get_or_create(&*self.api, &target, &namespace(name)).await {
                    tracing::warn!(name, "cannot make the namespace again yet: {error}");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }
}
