//! What is to become of one object: asked of the API, never of memory alone.

use meta::{ApiError, Str, Value, value};

use super::graph::{Dependent, FOREGROUND, ORPHAN, Object, Owner, has_finalizer, owners_of};
use crate::{Api, Target};

/// What came of looking at an object.
#[derive(Debug, Default)]
pub(super) struct Reconciled {
    /// Owners that are there.
    pub(super) found: Vec<Owner>,
    /// Dependents that have to be looked at now.
    pub(super) keys_for: Vec<Object>,
}

/// Looks at an object and does what is due.
pub(super) async fn reconcile(
    api: &dyn Api,
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
        return attend_deletion(api, &target, &live, dependents).await;
    }
    judge(api, object, &target, &live, &dependents).await
}

/// An object whose deletion may wait for its dependents.
async fn attend_deletion(
    api: &dyn Api,
    target: &Target,
    live: &Value,
    dependents: Vec<Dependent>,
) -> Result<Reconciled, ApiError> {
    let metadata = live.get("metadata").unwrap_or(&Value::Null);
    if has_finalizer(metadata, ORPHAN) {
        for dependent in &dependents {
            disown(api, &dependent.object, metadata.str_at(&["uid"])).await?;
        }
        remove_finalizer(api, target, live, ORPHAN).await?;
    } else if has_finalizer(metadata, FOREGROUND) {
        if !dependents.iter().any(|dependent| dependent.blocks) {
            remove_finalizer(api, target, live, FOREGROUND).await?;
        }
        // Those that nobody waits for go now as well.
        let keys_for = dependents.into_iter().map(|dependent| dependent.object).collect();
        return Ok(Reconciled { keys_for, ..Reconciled::default() });
    }
    Ok(Reconciled::default())
}

/// Takes one owner away from a dependent.
async fn disown(api: &dyn Api, dependent: &Object, owner: &str) -> Result<(), ApiError> {
    let target = dependent.resource.target(&dependent.namespace, &dependent.name);
    match api.get(&target).await {
        Ok(live) if live.str_at(&["metadata", "uid"]) == dependent.uid => {
            keep_owners(api, &target, live, |uid| uid != owner).await
        }
        Ok(_) | Err(ApiError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn keep_owners(
    api: &dyn Api,
    target: &Target,
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
    settle(api.update(target, &live).await.map(drop))
}

/// No owner waits for this object any more. Answers the version it has then.
async fn unblock_owners(
    api: &dyn Api,
    target: &Target,
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
    api: &dyn Api,
    target: &Target,
    live: &Value,
    name: &str,
) -> Result<(), ApiError> {
    let mut live = live.clone();
    let finalizers = live.at_mut(&["metadata", "finalizers"]).and_then(Value::as_array_mut);
    if let Some(finalizers) = finalizers {
        finalizers.retain(|finalizer| finalizer.as_str() != Some(name));
    }
    settle(api.update(target, &live).await.map(drop))
}

/// An object that is gone needs nothing more.
fn settle(done: Result<(), ApiError>) -> Result<(), ApiError> {
    match done {
        Err(ApiError::NotFound { .. }) => Ok(()),
        other => other,
    }
}

/// How it stands with an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Present,
    /// Being deleted, once its dependents are gone.
    Waiting,
    Absent,
    /// Nobody here knows its kind, so nothing can be concluded.
    Unknown,
}

/// Whether an object may stay, going by its owners.
async fn judge(
    api: &dyn Api,
    object: &Object,
    target: &Target,
    live: &Value,
    dependents: &[Dependent],
) -> Result<Reconciled, ApiError> {
    let metadata = live.get("metadata").unwrap_or(&Value::Null);
    let owners = owners_of(metadata);
    let mut attended = Reconciled::default();
    let mut standings = Vec::with_capacity(owners.len());
    for owner in &owners {
        let standing = standing(api, object, owner).await?;
        if standing == Standing::Present {
            attended.found.push(owner.clone());
        }
        standings.push(standing);
    }
    let some = |wanted| standings.contains(&wanted);
    if owners.is_empty() || !(some(Standing::Absent) || some(Standing::Waiting)) {
        return Ok(attended);
    }
    if some(Standing::Present) || some(Standing::Unknown) {
        // Somebody still wants it: only the others are taken off.
        let kept: Vec<&Str> = owners
            .iter()
            .zip(&standings)
            .filter(|(_, standing)| matches!(standing, Standing::Present | Standing::Unknown))
            .map(|(owner, _)| &owner.uid)
            .collect();
        let keep = |uid: &str| kept.iter().any(|kept| *kept == uid);
        keep_owners(api, target, live.clone(), keep).await?;
        return Ok(attended);
    }
    // If anything about it has changed since, the owners may have: it is looked at again then.
    let mut version = metadata.str_at(&["resourceVersion"]).to_owned();
    let in_foreground = some(Standing::Waiting) && !dependents.is_empty();
    if in_foreground && dependents.iter().any(|dependent| dependent.waits) {
        // Perhaps a circle: nobody in it would ever be the first to go.
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
    settle(api.delete(target, &options).await)?;
    Ok(attended)
}

async fn standing(api: &dyn Api, object: &Object, owner: &Owner) -> Result<Standing, ApiError> {
    let Some(resource) = api.resource_of(&owner.api_version, &owner.kind) else {
        return Ok(Standing::Unknown);
    };
    // A cluster-wide object can't say in which namespace its owner would be.
    if resource.namespaced && !object.resource.namespaced {
        return Ok(Standing::Unknown);
    }
    let found = api.get(&resource.target(&object.namespace, &owner.name)).await;
    Ok(match found {
        Err(ApiError::NotFound { .. }) => Standing::Absent,
        Err(error) => return Err(error),
        Ok(found) if found.str_at(&["metadata", "uid"]) != owner.uid => Standing::Absent,
        Ok(found) => {
            let metadata = found.get("metadata").unwrap_or(&Value::Null);
            let deleting = !metadata.str_at(&["deletionTimestamp"]).is_empty();
            if deleting && has_finalizer(metadata, FOREGROUND) {
                Standing::Waiting
            } else {
                Standing::Present
            }
        }
    })
}
