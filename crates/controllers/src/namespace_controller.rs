//! kube-controller-manager's namespace-controller: deletes the content of a terminating namespace,
//! then removes its finalizer. The namespace's conditions say what remains.

mod conditions;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use meta::{ApiError, GroupVersionResource, Value};
use parking_lot::Mutex;
use tokio::time::Instant;

use self::conditions::{RemainingContent, write_conditions};
use crate::{
    ApiClient, BoxFuture, Informer, ObjectEvent, ResourceRef,
    workqueue::{self, Key, ReconcileResult, Reconciler},
};

pub struct NamespaceController {
    api: Arc<dyn ApiClient>,
    grace: Duration,
    /// When terminating namespaces were seen first; empty without a grace.
    seen: Mutex<HashMap<String, Instant>>,
}

/// The entry of `spec.finalizers` that this controller removes.
const FINALIZER: &str = "kubernetes";
/// Resources whose objects are deleted concurrently.
const CONCURRENT_RESOURCES: usize = 8;

impl NamespaceController {
    /// A namespace is left alone for `grace` once it is terminating (kube-controller-manager: 5 s).
    pub fn new(api: Arc<dyn ApiClient>, grace: Duration) -> Self {
        Self { api, grace, seen: Mutex::default() }
    }

    /// Runs until the server stops. `events` are events of namespaces.
    pub async fn run(self, events: impl Informer) {
        workqueue::run(self, events).await;
    }

    async fn sync_namespace(&self, name: &str) -> Result<ReconcileResult, ApiError> {
        let target = ResourceRef::cluster("", "v1", "namespaces").named(name);
        let mut namespace = match self.api.get(&target).await {
            Ok(namespace) => namespace,
            Err(error) => {
                self.seen.lock().remove(name);
                return Err(error);
            }
        };
        let is_ours = |finalizer: &Value| finalizer.as_str() == Some(FINALIZER);
        if namespace.str_at(&["metadata", "deletionTimestamp"]).is_empty()
            || !namespace.items_at(&["spec", "finalizers"]).iter().any(is_ours)
        {
            self.seen.lock().remove(name);
            return Ok(ReconcileResult::Done);
        }
        if let Some(left) = self.grace_left(name) {
            return Ok(ReconcileResult::RequeueAfter(left));
        }
        let content = self.delete_all_content(name).await;
        if write_conditions(&mut namespace, &content) {
            let status = ResourceRef { subresource: "status", ..target.clone() };
            namespace = self.api.update(&status, &namespace).await?;
        }
        if !content.is_empty() {
            return Ok(ReconcileResult::Requeue);
        }
        let finalizers = namespace.at_mut(&["spec", "finalizers"]).and_then(Value::as_array_mut);
        if let Some(finalizers) = finalizers {
            finalizers.retain(|finalizer| !is_ours(finalizer));
        }
        self.api.update(&ResourceRef { subresource: "finalize", ..target }, &namespace).await?;
        Ok(ReconcileResult::Done)
    }

    fn grace_left(&self, name: &str) -> Option<Duration> {
        if self.grace.is_zero() {
            return None;
        }
        let seen = *self.seen.lock().entry(name.to_owned()).or_insert_with(Instant::now);
        self.grace.checked_sub(seen.elapsed()).filter(|left| !left.is_zero())
    }

    /// Deletes all objects of a namespace, pods first: they may still use its secrets and volumes.
    async fn delete_all_content(&self, namespace: &str) -> RemainingContent {
        let discovered = self.api.namespaced_resources();
        let mut content =
            RemainingContent { undiscovered: discovered.failed, ..RemainingContent::default() };
        let is_pods = |gvr: &GroupVersionResource| gvr.group.is_empty() && gvr.resource == "pods";
        let (pods, others): (Vec<_>, Vec<_>) = discovered.resources.into_iter().partition(is_pods);
        for resources in [pods, others] {
            let deleted = stream::iter(resources.into_iter().map(|gvr| async move {
                let left = self.delete_resource_content(namespace, &gvr).await;
                (gvr, left)
            }));
            let deleted: Vec<_> = deleted.buffer_unordered(CONCURRENT_RESOURCES).collect().await;
            for (gvr, left) in deleted {
                match left {
                    Ok(left) => content.add(gvr, &left),
                    Err(error) => content.failed.push(error.to_string()),
                }
            }
            if !content.remaining.is_empty() {
                break;
            }
        }
        content
    }

    /// Deletes all objects of a resource and returns those that remain.
    async fn delete_resource_content(
        &self,
        namespace: &str,
        gvr: &GroupVersionResource,
    ) -> Result<Vec<Value>, ApiError> {
        let target =
            ResourceRef { gvr: gvr.clone(), ..ResourceRef::default() }.in_namespace(namespace);
        let gone = |error| match error {
            // The definition of a custom resource was deleted meanwhile, and its objects with it.
            ApiError::NotServed | ApiError::NotFound { .. } => Ok(Vec::new()),
            error => Err(error),
        };
        match self.api.list(&target).await {
            Ok(there) if there.is_empty() => return Ok(there),
            Ok(_) => {}
            Err(error) => return gone(error),
        }
        if let Err(error) = self.api.delete_collection(&target).await {
            return gone(error);
        }
        self.api.list(&target).await.or_else(gone)
    }
}

impl Reconciler for NamespaceController {
    const QUEUE: &'static str = "namespace";

    fn keys_for(&self, event: &ObjectEvent) -> Vec<Key> {
        let deleting = !event.metadata.str_at(&["deletionTimestamp"]).is_empty();
        if event.deleted || !deleting { Vec::new() } else { vec![("".into(), event.name.clone())] }
    }

    fn reconcile<'a>(
        &'a self,
        (_, name): &'a Key,
    ) -> BoxFuture<'a, Result<ReconcileResult, ApiError>> {
        Box::pin(self.sync_namespace(name))
    }
}

impl RemainingContent {
    /// Counts the remaining objects of a resource and their finalizers.
    fn add(&mut self, gvr: GroupVersionResource, left: &[Value]) {
        if left.is_empty() {
            return;
        }
        for object in left {
            let finalizers = object.items_at(&["metadata", "finalizers"]).iter();
            for finalizer in finalizers.filter_map(Value::as_str) {
                *self.finalizers.entry(finalizer.to_owned()).or_insert(0) += 1;
            }
        }
        self.remaining.insert(format!("{}.{}", gvr.resource, gvr.group), left.len());
    }

    fn is_empty(&self) -> bool {
        let nothing: BTreeMap<String, usize> = BTreeMap::new();
        self.remaining == nothing && self.undiscovered.is_empty() && self.failed.is_empty()
    }
}
