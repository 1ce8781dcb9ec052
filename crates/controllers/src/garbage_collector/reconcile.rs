//! Decides about one object by live reads of the API, never by the graph alone.

use meta::{ApiError, Str, Value, value};

use super::graph::{Dependent, FOREGROUND, ORPHAN, Object, Owner, has_finalizer, owners_of};
use crate::{ApiClient, ResourceRef};

/// The outcome of a reconciliation.
#[derive(Debug, Default)]
pub(super) struct Reconciled {
    /// Owners that exist.
    pub(super) present_owners: Vec<Owner>,
    /// Dependents to reconcile next.
    pub(super) requeue: Vec<Object>,
}

/// Deletes, orphans or finalizes an object as its owners and dependents require.
pub(super) async fn reconcile(
    api: &dyn ApiClient,
    object: &Object,
    dependents: Vec<Dependent>,
) -> Result<Reconciled, ApiError> {
    let target = object.resource.target(&object.namespace, &object.name);
    let live = match api.get(&target).await {
        Ok(live) => live,
        Err(ApiError::NotFound { .. }) => return Ok(Reconciled::default()),
        Err(error) => return Err(error),
    };
    let metadata = live.get("metadata").unwrap_or(&Value::Null);
    if metadata.str_at(&["uid"]) != object.uid {
        return Ok(Reconciled::default());
    }
    if !metadata.str_at(&["deletionTimestamp"]).is_empty() {
        return process_deleting_object(api, &target, &live, dependents).await;
    }
    delete_if_unowned(api, object, &target, &live, &dependents).await
}

/// Handles the finalizers `orphan` and `foregroundDeletion` of an object that is being deleted.
async fn process_deleting_object(
    api: &dyn ApiClient,
    target: &ResourceRef,
    live: &Value,
    dependents: Vec<Dependent>,
) -> Result<Reconciled, ApiError> {
    let metadata = live.get("metadata").unwrap_or(&Value::Null);
    if has_finalizer(metadata, ORPHAN) {
        for dependent in &dependents {
            remove_owner_reference(api, &dependent.object, metadata.str_at(&["uid"])).await?;
        }
        remove_finalizer(api, target, live, ORPHAN).await?;
    } else if has_finalizer(metadata, FOREGROUND) {
        if !dependents.iter().any(|dependent| dependent.blocks) {
            remove_finalizer(api, target, live, FOREGROUND).await?;
        }
        // Dependents that do not block the owner are deleted as well.
        let requeue = dependents.into_iter().map(|dependent| dependent.object).collect();
        return Ok(Reconciled { requeue, ..Reconciled::default() });
    }
    Ok(Reconciled::default())
}

/// Removes the reference to one owner from a dependent.
async fn remove_owner_reference(
    api: &dyn ApiClient,
    dependent: &Object,
    owner: &str,
) -> Result<(), ApiError> {
    let target = dependent.resource.target(&dependent.namespace, &dependent.name);
    match api.get(&target).await {
        Ok(live) if live.str_at(&["metadata", "uid"]) == dependent.uid => {
            retain_owner_references(api, &target, live, |uid| uid != owner).await
        }
        Ok(_) | Err(ApiError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn retain_owner_references(
    api: &dyn ApiClient,
    target: &ResourceRef,
    mut live: Value,
    keep: impl Fn(&str) -> bool,
) -> Result<(), ApiError> {
    let references = live.at_mut(&["metadata", "ownerReferences"]).and_then(Value::as_array_mut);
    let Some(references) = references else { return Ok(()) };
    let before = references.len();
    references.retain(|reference| keep(reference.str_at(&["uid"])));
    if references.len() == before {
        return Ok(());
    }
    ignore_not_found(api.update(target, &live).await.map(drop))
}

/// Sets `blockOwnerDeletion` to false in all references; returns the new resourceVersion.
async fn unblock_owners(
    api: &dyn ApiClient,
    target: &ResourceRef,
    mut live: Value,
) -> Result<String, ApiError> {
    let references = live.at_mut(&["metadata", "ownerReferences"]).and_then(Value::as_array_mut);
    for reference in references.into_iter().flatten() {
        if reference.bool_at(&["blockOwnerDeletion"]) {
            reference.set_at(&["blockOwnerDeletion"], false);
        }
    }
    let updated = api.update(target, &live).await?;
    Ok(updated.str_at(&["metadata", "resourceVersion"]).to_owned())
}

async fn remove_finalizer(
    api: &dyn ApiClient,
    target: &ResourceRef,
    live: &Value,
    name: &str,
) -> Result<(), ApiError> {
    let mut live = live.clone();
    let finalizers = live.at_mut(&["metadata", "finalizers"]).and_then(Value::as_array_mut);
    if let Some(finalizers) = finalizers {
        finalizers.retain(|finalizer| finalizer.as_str() != Some(name));
    }
    ignore_not_found(api.update(target, &live).await.map(drop))
}

/// An object that no longer exists needs nothing more.
fn ignore_not_found(done: Result<(), ApiError>) -> Result<(), ApiError> {
    match done {
        Err(ApiError::NotFound { .. }) => Ok(()),
        other => other,
    }
}

/// The state of an owner reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnerState {
    Solid,
    /// The owner is in foreground deletion and waits for its dependents.
    WaitingForDependents,
    Dangling,
    /// The owner's kind is not served, so its existence is unknown.
    Unknown,
}

/// Deletes an object whose owners are all gone, and removes dangling references otherwise.
async fn delete_if_unowned(
    api: &dyn ApiClient,
    object: &Object,
    target: &ResourceRef,
    live: &Value,
    dependents: &[Dependent],
) -> Result<Reconciled, ApiError> {
    let metadata = live.get("metadata").unwrap_or(&Value::Null);
    let owners = owners_of(metadata);
    let mut reconciled = Reconciled::default();
    let mut states = Vec::with_capacity(owners.len());
    for owner in &owners {
        let state = classify_reference(api, object, owner).await?;
        if state == OwnerState::Solid {
            reconciled.present_owners.push(owner.clone());
        }
        states.push(state);
    }
    let some = |wanted| states.contains(&wanted);
    if owners.is_empty() || !(some(OwnerState::Dangling) || some(OwnerState::WaitingForDependents))
    {
        return Ok(reconciled);
    }
    if some(OwnerState::Solid) || some(OwnerState::Unknown) {
        // One owner remains: only the dangling references are removed.
        let kept: Vec<&Str> = owners
            .iter()
            .zip(&states)
            .filter(|(_, state)| matches!(state, OwnerState::Solid | OwnerState::Unknown))
            .map(|(owner, _)| &owner.uid)
            .collect();
        let keep = |uid: &str| kept.iter().any(|kept| *kept == uid);
        retain_owner_references(api, target, live.clone(), keep).await?;
        return Ok(reconciled);
    }
    // Precondition: if the object has changed since the read, its owners may have as well.
    let mut version = metadata.str_at(&["resourceVersion"]).to_owned();
    let in_foreground = some(OwnerState::WaitingForDependents) && !dependents.is_empty();
    if in_foreground && dependents.iter().any(|dependent| dependent.waits) {
        // Perhaps a cycle of owners, in which every deletion would wait for another.
        version = unblock_owners(api, target, live.clone()).await?;
    }
    let policy = if has_finalizer(metadata, ORPHAN) {
        "Orphan"
    } else if has_finalizer(metadata, FOREGROUND) || in_foreground {
        "Foreground"
    } else {
        "Background"
    };
    let options = value!({
        "propagationPolicy": (policy),
        "preconditions": {
            "uid": (object.uid.clone()),
            "resourceVersion": (version),
        },
    });
    ignore_not_found(api.delete(target, &options).await)?;
    Ok(reconciled)
}

async fn classify_reference(
    api: &dyn ApiClient,
    object: &Object,
    owner: &Owner,
) -> Result<OwnerState, ApiError> {
    let Some(resource) = api.resource_of(&owner.api_version, &owner.kind) else {
        return Ok(OwnerState::Unknown);
    };
    // A cluster-scoped object cannot refer to an owner in a namespace.
    if resource.namespaced && !object.resource.namespaced {
        return Ok(OwnerState::Unknown);
    }
    let found = api.get(&resource.target(&object.namespace, &owner.name)).await;
    Ok(match found {
        Err(ApiError::NotFound { .. }) => OwnerState::Dangling,
        Err(error) => return Err(error),
        Ok(found) if found.str_at(&["metadata", "uid"]) != owner.uid => OwnerState::Dangling,
        Ok(found) => {
            let metadata = found.get("metadata").unwrap_or(&Value::Null);
            let deleting = !metadata.str_at(&["deletionTimestamp"]).is_empty();
            if deleting && has_finalizer(metadata, FOREGROUND) {
                OwnerState::WaitingForDependents
            } else {
                OwnerState::Solid
            }
        }
    })
}
