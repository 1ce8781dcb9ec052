//! Namespaces that are deleted go when they are empty: this loop empties them. Those of the system
//! come back.

use std::{sync::Arc, time::Duration};

use meta::{ApiError, Value};

use crate::{Api, Pinned, SYSTEM_NAMESPACES, Target, ensure, namespace};

/// Tells when a namespace may have changed.
pub trait Wake: Send + 'static {
    /// False: the server stops.
    fn changed(&mut self) -> Pinned<'_, bool>;
}

pub struct NamespaceController {
    pub api: Arc<dyn Api>,
}

/// How long to wait before looking again at a namespace that could not be emptied (finalizers,
/// grace periods).
const RETRY: Duration = Duration::from_millis(500);

impl NamespaceController {
    /// Works until the server stops.
    pub async fn run(self, mut wake: impl Wake) {
        loop {
            let waiting = self.sweep().await;
            let changed = async {
                if waiting {
                    tokio::select! {
                        alive = wake.changed() => alive,
                        () = tokio::time::sleep(RETRY) => true,
                    }
                } else {
                    wake.changed().await
                }
            };
            if !changed.await {
                return;
            }
        }
    }

    /// Looks at all namespaces once. True: some of them still wait.
    async fn sweep(&self) -> bool {
        let namespaces = Target::cluster("", "v1", "namespaces");
        let Ok(all) = self.api.list(&namespaces).await else { return true };
        let mut waiting = self.restore(&all).await;
        for namespace in all.iter().filter(|namespace| is_deleting(namespace)) {
            match self.empty(namespace).await {
                Ok(true) => {}
                Ok(false) => waiting = true,
                Err(error) => {
                    let name = namespace.str_at(&["metadata", "name"]);
                    tracing::warn!(namespace = name, "cannot empty a namespace yet: {error}");
                    waiting = true;
                }
            }
        }
        waiting
    }

    /// Makes the system's namespaces again when one is gone. True: that did not work yet.
    async fn restore(&self, all: &[Value]) -> bool {
        let target = Target::cluster("", "v1", "namespaces");
        let mut waiting = false;
        for name in SYSTEM_NAMESPACES {
            if all.iter().any(|namespace| namespace.str_at(&["metadata", "name"]) == name) {
                continue;
            }
            waiting |= ensure(&*self.api, &target, &namespace(name)).await.is_err();
        }
        waiting
    }

    /// Deletes what is inside; lets the namespace go when nothing is left.
    async fn empty(&self, namespace: &Value) -> Result<bool, ApiError> {
        let name = namespace.str_at(&["metadata", "name"]);
        let mut empty = true;
        for gvr in self.api.namespaced_resources() {
            let target = Target { gvr, ..Target::default() }.in_namespace(name);
            if self.api.list(&target).await?.is_empty() {
                continue;
            }
            self.api.delete_collection(&target).await?;
            empty &= self.api.list(&target).await?.is_empty();
        }
        if !empty {
            return Ok(false);
        }
        let mut finalized = namespace.clone();
        finalized.set_at(&["spec", "finalizers"], Value::Array(Vec::new()));
        let target = Target {
            subresource: "finalize",
            ..Target::cluster("", "v1", "namespaces").named(name)
        };
        match self.api.update(&target, &finalized).await {
            Ok(_) | Err(ApiError::NotFound { .. }) => Ok(true),
            // Somebody changed it; the next round sees how.
            Err(ApiError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn is_deleting(namespace: &Value) -> bool {
    !namespace.str_at(&["metadata", "deletionTimestamp"]).is_empty()
}
