//! kube-controller-manager's root-ca-certificate-publisher-controller: ConfigMap `kube-root-ca.crt`
//! in every namespace, by which pods verify the apiserver's certificate.

use std::sync::Arc;

use meta::{ApiError, Value, value};

use crate::{
    ApiClient, BoxFuture, Informer, ObjectEvent, ResourceRef,
    bootstrap::reconcile_fields,
    default_service_account::{is_namespace_unavailable, namespace_key},
    workqueue::{self, Key, ReconcileResult, Reconciler},
};

pub struct RootCaPublisher {
    pub api: Arc<dyn ApiClient>,
    /// The CA's certificate, PEM.
    pub ca: String,
}

impl RootCaPublisher {
    pub const NAME: &str = "kube-root-ca.crt";

    /// Runs until the server stops. `events` are of namespaces and of config maps of this name.
    pub async fn run(self, events: impl Informer) {
        workqueue::run(self, events).await;
    }

    fn config_map(&self) -> Value {
        value!({
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": {
                "name": (Self::NAME),
                "annotations": {"kubernetes.io/description": (DESCRIPTION)},
            },
            "data": {"ca.crt": (self.ca.as_str())},
        })
    }

    async fn sync(&self, namespace: &str) -> Result<ReconcileResult, ApiError> {
        let target = ResourceRef::cluster("", "v1", "configmaps").in_namespace(namespace);
        match reconcile_fields(&*self.api, &target, &self.config_map(), &[&["data"]]).await {
            Err(error) if !is_namespace_unavailable(&error) => Err(error),
            _ => Ok(ReconcileResult::Done),
        }
    }
}

impl Reconciler for RootCaPublisher {
    const QUEUE: &'static str = "root_ca_cert_publisher";

    fn keys_for(&self, event: &ObjectEvent) -> Vec<Key> {
        namespace_key(event)
    }

    fn reconcile<'a>(
        &'a self,
        (namespace, _): &'a Key,
    ) -> BoxFuture<'a, Result<ReconcileResult, ApiError>> {
        Box::pin(self.sync(namespace))
    }
}

const DESCRIPTION: &str = "The certificates by which clients inside of the cluster know that they talk to its API server.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeClient;

    #[tokio::test]
    async fn changed_data_is_restored_and_annotations_stay() {
        let changed = value!({"metadata": {"name": "kube-root-ca.crt", "namespace": "n",
            "annotations": {"mine": "x"}}, "data": {"ca.crt": "other"}});
        let api = FakeClient::new([("configmaps", changed)]);
        let publisher = RootCaPublisher { api: api.clone(), ca: "CA".to_owned() };
        publisher.reconcile(&("n".into(), "".into())).await.unwrap();
        let restored = api.object("configmaps", "n", "kube-root-ca.crt");
        assert_eq!(restored.str_at(&["data", "ca.crt"]), "CA");
        assert_eq!(restored.str_at(&["metadata", "annotations", "mine"]), "x");
    }
}
