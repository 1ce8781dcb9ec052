//! Maps managedFields of `spec.replicas` between an object and its scale subresource, which has the
//! field under another path and version.

use std::collections::BTreeMap;

use meta::Value;

use super::managed_fields::{self, ManagedFields, ManagedFieldsEntry};
use super::path::{Path, PathElement};
use super::set::Set;

/// The path of the replicas field in each version of the parent. None: a version without scale.
pub type ReplicasPaths = BTreeMap<String, Option<Path>>;

const SCALE_VERSION: &str = "autoscaling/v1";

/// Copies the managedFields entries for the replicas of `parent` to its scale.
pub fn scale_to_subresource(
    parent: &Value,
    scale: &mut Value,
    paths: &ReplicasPaths,
) -> Result<(), String> {
    let mut managed_fields = ManagedFields::new();
    for (id, owner) in managed_fields::decode(parent)? {
        let path = paths.get(&owner.api_version).and_then(Option::as_ref);
        if path.is_some_and(|path| owner.set.set().has(path)) {
            let (api_version, set) = (SCALE_VERSION.to_owned(), Set::of(&[REPLICAS]).into());
            managed_fields.insert(id, ManagedFieldsEntry { api_version, set, ..owner });
        }
    }
    managed_fields::encode(scale, managed_fields);
    Ok(())
}

/// Merges the managedFields of a written scale back into `parent`, whose version is `api_version`.
pub fn scale_to_parent(
    scale: &Value,
    parent: &mut Value,
    api_version: &str,
    paths: &ReplicasPaths,
) -> Result<(), String> {
    let parent_owners = managed_fields::decode(parent)?;
    let mut scale_owners = managed_fields::decode(scale)?;
    let mut managed_fields = ManagedFields::new();
    for (id, owner) in &parent_owners {
        let Some(path) = paths.get(&owner.api_version) else { continue };
        let owned = path.as_ref().filter(|path| owner.set.set().has(path));
        let mut owner = owner.clone();
        if let Some(path) = owned
            && scale_owners.remove(id).is_none()
        {
            // Another manager set the replicas.
            owner.set = std::mem::take(&mut owner.set).into_set().difference(&single(path)).into();
        }
        if !owner.set.is_empty() {
            managed_fields.insert(id.clone(), owner);
        }
    }
    let replicas: Path = REPLICAS.iter().map(|name| PathElement::field(name)).collect();
    let path = paths.get(api_version).cloned().flatten().unwrap_or_default();
    for (id, owner) in scale_owners {
        if owner.set.set().has(&replicas) {
            let time = parent_owners.get(&id).map(|owner| owner.time.clone()).unwrap_or_default();
            let (api_version, set) = (api_version.to_owned(), single(&path).into());
            managed_fields.insert(id, ManagedFieldsEntry { api_version, time, set, ..owner });
        }
    }
    managed_fields::encode(parent, managed_fields);
    Ok(())
}

const REPLICAS: &[&str] = &["spec", "replicas"];

fn single(path: &[PathElement]) -> Set {
    let mut set = Set::default();
    set.insert(path);
    set
}
