//! Deletes the objects of a definition that is being deleted, then removes its finalizer
//! (condition `Terminating`).

use std::{sync::Arc, time::Duration};

use endpoints::{Kinds, LoopbackClient, ResourceRef, Resources};
use meta::{ApiError, Str, Value};
use registry::{Engine, Kind};
use store::WatchItem;

use crate::conditions::{self, Condition, ESTABLISHED, TERMINATING};

pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Whether a definition waits for the deletion of its objects.
pub(crate) fn needs_finalizing(definition: &Value) -> bool {
    let mut finalizers = definition.items_at(&["metadata", "finalizers"]).iter();
    !definition.str_at(&["metadata", "deletionTimestamp"]).is_empty()
        && finalizers.any(|name| name.as_str() == Some(FINALIZER))
}

/// Adds the finalizer and the condition `Terminating`.
pub fn mark_for_deletion(definition: &mut Value) {
    let mut finalizers = definition.items_at(&["metadata", "finalizers"]).to_vec();
    if !finalizers.iter().any(|name| name.as_str() == Some(FINALIZER)) {
        finalizers.push(Value::string(FINALIZER));
        definition.set_at(&["metadata", "finalizers"], Value::Array(finalizers));
    }
    let pending = Condition::new(
        TERMINATING,
        true,
        "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    );
    conditions::set(definition, &pending, &meta::time::now());
}

/// Finalizes one definition.
pub(crate) struct CrdFinalizer {
    pub(crate) local: LoopbackClient,
    pub(crate) engine: Arc<Engine>,
    /// The storage version of the objects; None if they were never served.
    pub(crate) stored: Option<Arc<Kind>>,
}

impl CrdFinalizer {
    /// Deletes the objects and removes the finalizer. An error means that it has to be retried.
    pub(crate) async fn run(&self, mut definition: Value) -> Result<(), ApiError> {
        let in_progress = Condition::new(
            TERMINATING,
            true,
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
        );
        definition = self.write_condition(definition, &in_progress).await?;
        let established = conditions::is_true(&definition, ESTABLISHED);
        let done = match &self.stored {
            Some(stored) if established => match self.delete_objects(stored).await {
                Ok(done) => done,
                Err((condition, error)) => {
                    self.write_condition(definition, &condition).await?;
                    return Err(error);
                }
            },
            _ => Condition::new(
                TERMINATING,
                false,
                "NeverEstablished",
                "resource was never established",
            ),
        };
        conditions::set(&mut definition, &done, &meta::time::now());
        let finalizers = definition.items_at(&["metadata", "finalizers"]).iter();
        let others = finalizers.filter(|name| name.as_str() != Some(FINALIZER)).cloned();
        let others: Vec<Value> = others.collect();
        definition.set_at(&["metadata", "finalizers"], Value::Array(others));
        self.write(&definition).await.map(drop)
    }

    async fn write_condition(
        &self,
        mut definition: Value,
        condition: &Condition,
    ) -> Result<Value, ApiError> {
        conditions::set(&mut definition, condition, &meta::time::now());
        self.write(&definition).await
    }

    async fn write(&self, definition: &Value) -> Result<Value, ApiError> {
        write_status(&self.local, definition).await
    }

    async fn delete_objects(&self, stored: &Arc<Kind>) -> Result<Condition, (Condition, ApiError)> {
        let failed = |what: &str, error: ApiError| {
            let message = format!("{what}: {error}");
            (Condition::new(TERMINATING, true, "InstanceDeletionFailed", message), error)
        };
        // The storage version may not be served, so this client has a table of its own.
        let kinds = Kinds::new([stored.clone()]);
        let server = Arc::new(Resources::new("finalizing", self.engine.clone(), kinds));
        let local = LoopbackClient::new(&[&server]);
        let gvr = stored.facts.group_version_resource();
        for namespace in namespaces(stored) {
            let target = ResourceRef { namespace: &namespace, ..ResourceRef::from(&gvr) };
            local
                .delete_collection(&target)
                .await
                .map_err(|error| failed("could not issue all deletes", error))?;
        }
        if !wait_until_deleted(stored).await {
            let why = "timed out waiting for the condition";
            let message = format!("could not confirm zero CustomResources remaining: {why}");
            let condition = Condition::new(TERMINATING, true, "InstanceDeletionCheck", message);
            return Err((condition, ApiError::internal(why)));
        }
        Ok(Condition::new(TERMINATING, false, "InstanceDeletionCompleted", "removed all instances"))
    }
}

/// The namespaces with objects; one empty name for a cluster-scoped resource.
fn namespaces(kind: &Kind) -> Vec<Str> {
    let Some(storage) = &kind.storage else { return Vec::new() };
    let snapshot = storage.cache.snapshot();
    let mut namespaces: Vec<Str> =
        snapshot.range(&storage.prefix, None).map(|entry| entry.namespace.clone()).collect();
    namespaces.dedup();
    namespaces
}

/// How long objects with finalizers are waited for before the condition reports it.
const DELETION_WAIT_MAX: Duration = Duration::from_mins(1);

async fn wait_until_deleted(kind: &Kind) -> bool {
    let Some(storage) = &kind.storage else { return true };
    let cache = &storage.cache;
    let gone = async {
        loop {
            let Ok(snapshot) = cache.fresh().await else { return };
            if snapshot.count(&storage.prefix) == 0 {
                return;
            }
            let Ok(mut watcher) = cache.watch(snapshot.revision, None) else { return };
            if matches!(watcher.next().await, WatchItem::Closed) {
                return;
            }
        }
    };
    let in_time = tokio::time::timeout(DELETION_WAIT_MAX, gone).await.is_ok();
    in_time && cache.snapshot().count(&storage.prefix) == 0
}

/// Writes status and metadata of a definition.
pub(crate) async fn write_status(
    local: &LoopbackClient,
    definition: &Value,
) -> Result<Value, ApiError> {
    let target = ResourceRef {
        group: crate::GROUP,
        version: "v1",
        resource: "customresourcedefinitions",
        name: definition.str_at(&["metadata", "name"]),
        subresource: "status",
        ..ResourceRef::default()
    };
    local.update(&target, definition).await
}
