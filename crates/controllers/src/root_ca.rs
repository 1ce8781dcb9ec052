//! Objects that every namespace has: its default service account, and the certificate by which pods
//! know the server. Made when a namespace is, and again when somebody takes them away.

use std::{sync::Arc, time::Duration};

use meta::{ApiError, Value, value};

use crate::{Api, Change, Informer, Target, bootstrap::reconcile};

/// Keeps one object in every namespace.
pub struct InEveryNamespace {
    pub api: Arc<dyn Api>,
    /// Where its kind lives.
    pub resource: Target,
    pub object: Value,
    /// What of it must stay as it is here; the rest belongs to others.
    pub fields: &'static [&'static [&'static str]],
}

/// When something failed, it is tried again this much later.
const RETRY: Duration = Duration::from_secs(1);

impl InEveryNamespace {
    /// `default`, which pods act as unless they say otherwise.
    pub fn service_account(api: Arc<dyn Api>) -> Self {
        let object =
            value!({"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "default"}});
        Self { api, resource: Target::cluster("", "v1", "serviceaccounts"), object, fields: &[] }
    }

    /// `kube-root-ca.crt`: whom to trust as the server.
    pub fn root_certificate(api: Arc<dyn Api>, ca: String) -> Self {
        let object = value!({
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": {
                "name": "kube-root-ca.crt",
                "annotations": {"kubernetes.io/description": (DESCRIPTION)},
            },
            "data": {"ca.crt": (ca)},
        });
        let resource = Target::cluster("", "v1", "configmaps");
        Self { api, resource, object, fields: &[&["data"]] }
    }

    pub fn name(&self) -> &str {
        self.object.str_at(&["metadata", "name"])
    }

    /// Works until the server stops. `changes` are of namespaces and of the objects kept here.
    pub async fn run(self, mut changes: impl Informer) {
        let mut failed: Vec<String> = Vec::new();
        loop {
            let change = if failed.is_empty() {
                changes.next().await
            } else {
                tokio::select! {
                    change = changes.next() => change,
                    () = tokio::time::sleep(RETRY) => {
                        for namespace in std::mem::take(&mut failed) {
                            self.keep(namespace, &mut failed).await;
                        }
                        continue;
                    }
                }
            };
            let seen = match change {
                None => return,
                // What is there is told again.
                Some(Change::Lost) => continue,
                Some(Change::Seen(seen)) => seen,
            };
            let is_namespace = seen.resource.gvr.resource == "namespaces";
            let namespace = if is_namespace { seen.name } else { seen.namespace };
            let leaving = !seen.metadata.str_at(&["deletionTimestamp"]).is_empty();
            // A namespace on its way out is emptied; nothing comes into it any more.
            if !(is_namespace && (seen.gone || leaving)) {
                self.keep(namespace.to_string(), &mut failed).await;
            }
        }
    }

    async fn keep(&self, namespace: String, failed: &mut Vec<String>) {
        let target = self.resource.clone().in_namespace(&namespace);
        match reconcile(&*self.api, &target, &self.object, self.fields).await {
            // The namespace is gone, or going.
            Ok(()) | Err(ApiError::NotFound { .. } | ApiError::Forbidden { .. }) => {}
            Err(error) => {
                let name = self.name();
                tracing::warn!(namespace, name, "cannot make it yet: {error}");
                failed.push(namespace);
            }
        }
    }
}

const DESCRIPTION: &str = "The certificates by which clients inside of the cluster know that they talk to its API server.";
