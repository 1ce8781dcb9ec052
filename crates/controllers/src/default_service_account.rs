//! kube-controller-manager's serviceaccount-controller: service account `default` in every namespace,
//! which pods run as unless their spec names another.

use std::sync::Arc;

use meta::{ApiError, value};

use crate::{
    ApiClient, BoxFuture, Informer, ObjectEvent, ResourceRef,
    bootstrap::get_or_create,
    workqueue::{self, Key, ReconcileResult, Reconciler},
};

pub struct ServiceAccountController {
    pub api: Arc<dyn ApiClient>,
}

impl ServiceAccountController {
    pub const NAME: &str = "default";

    /// Runs until the server stops. `events` are of namespaces and of service accounts of this name.
    pub async fn run(self, events: impl Informer) {
        workqueue::run(self, events).await;
    }

    async fn sync(&self, namespace: &str) -> Result<ReconcileResult, ApiError> {
        let target = ResourceRef::cluster("", "v1", "serviceaccounts").in_namespace(namespace);
        let account = value!({"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": (Self::NAME)}});
        match get_or_create(&*self.api, &target, &account).await {
            Err(error) if !is_namespace_unavailable(&error) => Err(error),
            _ => Ok(ReconcileResult::Done),
        }
    }
}

impl Reconciler for ServiceAccountController {
    const QUEUE: &'static str = "serviceaccount";

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

/// The namespace in which an object that every namespace has may be missing after this event. None
/// for a namespace that is deleted: nothing can be created in it.
pub(crate) fn namespace_key(event: &ObjectEvent) -> Vec<Key> {
    let is_namespace = event.resource.gvr.resource == "namespaces";
    let is_terminating = !event.metadata.str_at(&["deletionTimestamp"]).is_empty();
    if is_namespace && (event.deleted || is_terminating) {
        return Vec::new();
    }
    let namespace = if is_namespace { &event.name } else { &event.namespace };
    vec![(namespace.clone(), "".into())]
}

/// The namespace is gone or terminating, so the object is not needed.
pub(crate) fn is_namespace_unavailable(error: &ApiError) -> bool {
    matches!(error, ApiError::NotFound { .. } | ApiError::Forbidden { .. })
}

#[cfg(test)]
mod tests {
    use meta::Value;

    use super::*;
    use crate::Resource;

    #[test]
    fn only_namespaces_that_stay_get_their_objects() {
        let terminating = value!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        // Resource, deleted, metadata, the namespace that is looked at.
        let cases = [
            ("namespaces", false, Value::object(), Some("x")),
            ("namespaces", true, Value::object(), None),
            ("namespaces", false, terminating, None),
            ("serviceaccounts", true, Value::object(), Some("n")),
        ];
        for (resource, deleted, metadata, expected) in cases {
            let mut of = Resource::default();
            of.gvr.resource = resource.into();
            let event = ObjectEvent {
                resource: Arc::new(of),
                namespace: "n".into(),
                name: "x".into(),
                deleted,
                metadata,
            };
            let expected: Vec<Key> =
                expected.into_iter().map(|namespace| (namespace.into(), "".into())).collect();
            assert_eq!(namespace_key(&event), expected, "{resource} {deleted}");
        }
    }
}
