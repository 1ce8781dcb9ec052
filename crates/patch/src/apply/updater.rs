//! Computes managedFields after a write, and the merged object of an apply: structured-merge-diff's
//! `merge.Updater`.

use std::{collections::BTreeMap, sync::LazyLock};

use meta::Value;
use schema::{Schema, TypeId};

use super::atom::{TypeRef, normalize};
use super::compare::{Comparison, NewObject, compare};
use super::managed_fields::{ManagedFields, ManagedFieldsEntry, cap_update_managers};
use super::merge::merge;
use super::path::same_value;
use super::set::Set;
use super::typed::{ensure_named_fields_are_members, field_set, remove_items};
use super::{ApplyError, Conflicts, Manager, ManagerConflicts, TypeContext};

/// The manager of an update takes ownership of the fields that it changed, away from all other
/// managers.
pub(super) fn update(
    live: &Value,
    new: &Value,
    managed_fields: &mut ManagedFields,
    types: &TypeContext<'_>,
    manager: &Manager<'_>,
) {
    reconcile_all(managed_fields, types, manager);
    let (comparison, _) = take_over(live, new, managed_fields, None, types, manager);
    let set = owned_after_update(comparison);
    if !set.is_empty() {
        let writer = manager.owner(false);
        let owner = managed_fields.entry(writer.id()).or_insert(writer);
        if !owner.set.includes(&set) {
            owner.set = std::mem::take(&mut owner.set).into_set().union(set).into();
        }
        manager.now.clone_into(&mut owner.time);
    }
    cap_update_managers(managed_fields);
}

/// The fields that the manager of an update owns by it.
fn owned_after_update(comparison: Comparison) -> Set {
    // What the request may not own is left out of the comparison already.
    strip(comparison.changed())
}

/// The merged object and its managedFields. If nothing changed, the object is the live one and
/// entries keep their times.
pub(super) fn apply(
    live: &Value,
    config: &Value,
    mut managed_fields: ManagedFields,
    types: &TypeContext<'_>,
    manager: &Manager<'_>,
    force: bool,
) -> Result<(Value, ManagedFields), ApplyError> {
    let (schema, root) = (types.schema, TypeRef::Type(types.ty));
    reconcile_all(&mut managed_fields, types, manager);
    let merged = merge(schema, root, live, config)
        .map_err(|why| ApplyError::Untyped(format!("failed to merge config: {why}")))?;

    let applier = manager.owner(true);
    let id = applier.id();
    let set = types.fields.apply(field_set(schema, root, config)).into();
    let time = managed_fields.get(&id).map(|last| last.time.clone()).unwrap_or_default();
    let last = managed_fields.insert(id.clone(), ManagedFieldsEntry { time, set, ..applier });

    let new = prune(merged, &managed_fields, last.as_ref(), &id, types, manager);
    let unchanged = same_value(live, &new);
    // If the object did not change, no manager loses a field.
    if !unchanged {
        let (_, conflicts) =
            take_over(live, &new, &mut managed_fields, Some((&id, force)), types, manager);
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
    }
    if let Some(owner) = managed_fields.get_mut(&id) {
        owner.set = strip(std::mem::take(&mut owner.set).into_set()).into();
    }
    managed_fields.retain(|_, owner| !owner.set.is_empty());
    if unchanged {
        return Ok((live.clone(), managed_fields));
    }
    if let Some(owner) = managed_fields.get_mut(&id) {
        manager.now.clone_into(&mut owner.time);
    }
    Ok((new, managed_fields))
}

/// Removes changed and removed fields from the entries of all managers but the applier. Without
/// `force`, an apply returns the conflicts instead and changes no entry.
fn take_over(
    live: &Value,
    new: &Value,
    managed_fields: &mut ManagedFields,
    applier: Option<(&str, bool)>,
    types: &TypeContext<'_>,
    manager: &Manager<'_>,
) -> (Comparison, Conflicts) {
    let kind = if applier.is_some() { NewObject::Merged } else { NewObject::Whole };
    let mut comparison = compare(types.schema, TypeRef::Type(types.ty), live, new, kind);
    comparison.filter(|set| types.fields.apply(set));
    let is_applier = |id: &str| applier.is_some_and(|(applier, _)| applier == id);
    if managed_fields.keys().all(|id| is_applier(id)) {
        return (comparison, Conflicts::default());
    }
    let mut versions = BTreeMap::from([(manager.api_version.to_owned(), Some(comparison.clone()))]);

    // What the manager of an update loses and gets back.
    let writer = applier.is_none().then(|| manager.owner(false).id());
    let regained = match &writer {
        Some(writer) if managed_fields.contains_key(writer) => {
            owned_after_update(comparison.clone())
        }
        _ => Set::default(),
    };
    let mut conflicts = Conflicts::default();
    let mut losses: Vec<(String, Option<Set>)> = Vec::new();
    for (id, owner) in managed_fields.iter().filter(|(id, _)| !is_applier(id)) {
        let compared = versions.entry(owner.api_version.clone()).or_insert_with(|| {
            let (old, ty) = types.versions.convert(live, &owner.api_version)?;
            let (new, _) = types.versions.convert(new, &owner.api_version)?;
            // Converted objects went through Go's structs, so they compare as whole objects.
            let mut compared =
                compare(types.schema, TypeRef::Type(ty), &old, &new, NewObject::Whole);
            compared.filter(|set| types.fields.apply(set));
            Some(compared)
        });
        let Some(compared) = compared else {
            // Entries in a version that is no longer served are dropped.
            losses.push((id.clone(), None));
            continue;
        };
        let taken = owner.set.intersection(&compared.modified);
        let taken = taken.union(owner.set.intersection(&compared.added));
        let removed = owner.set.intersection(&compared.removed);
        // An entry that would be the same again stays as it is.
        let is_regained = writer.as_ref() == Some(id) && removed.is_empty() && taken == regained;
        let is_unchanged = is_regained || taken.is_empty() && removed.is_empty();
        if !is_unchanged {
            let left = owner.set.set().clone().difference(&taken).difference(&compared.removed);
            losses.push((id.clone(), Some(left)));
        }
        if !taken.is_empty() {
            conflicts.0.push(ManagerConflicts { manager: owner.show(), fields: taken });
        }
    }
    match applier {
        Some((_, false)) if !conflicts.is_empty() => return (comparison, conflicts),
        _ => conflicts.0.clear(),
    }
    for (id, left) in losses {
        match (managed_fields.get_mut(&id), left) {
            (Some(owner), Some(left)) => owner.set = left.into(),
            _ => drop(managed_fields.remove(&id)),
        }
    }
    managed_fields.retain(|_, owner| !owner.set.is_empty());
    (comparison, conflicts)
}

/// Removes the fields that the applier's last configuration had, this one does not have, and no
/// other manager owns.
fn prune(
    merged: Value,
    managed_fields: &ManagedFields,
    last: Option<&ManagedFieldsEntry>,
    applier: &str,
    types: &TypeContext<'_>,
    manager: &Manager<'_>,
) -> Value {
    let Some(last) = last.filter(|last| !last.set.is_empty()) else { return merged };
    // Common case: the new configuration contains all fields of the last one, so nothing is
    // removed. Mostly it has the same ones.
    if last.api_version == manager.api_version
        && managed_fields.get(applier).is_some_and(|applier| {
            last.set.is_equal(applier.set.set()) || applier.set.includes(last.set.set())
        })
    {
        return merged;
    }
    let Some(at_last) = VersionedObject::of(&merged, &last.api_version, types, manager) else {
        return merged;
    };
    let mut pruned = at_last.without(&at_last.named(last.set.set()));

    let mut owned_by_version: BTreeMap<&str, Vec<Set>> = BTreeMap::new();
    for owner in managed_fields.values() {
        owned_by_version.entry(&owner.api_version).or_default().push(owner.set.set().clone());
    }
    // The version of the last apply comes first: conversion may need the fields that this adds
    // back.
    let first = owned_by_version.remove_entry(last.api_version.as_str());
    for (version, owned) in first.into_iter().chain(owned_by_version) {
        let owned = Set::union_all(owned);
        pruned = add_back_owned(&at_last, pruned, version, &owned, types);
    }

    // Only fields that the applier owned may be removed; fields without an owner stay.
    let kept = at_last.named(&at_last.fields_of(&pruned));
    let removed = at_last.named(&at_last.fields()).difference(&kept);
    let pruned = at_last.without(&removed.intersection(&at_last.named(last.set.set())));
    VersionedObject::of_object(pruned, &last.api_version, manager.api_version, types)
}

/// Adds back removed fields that a manager owns in `version`.
fn add_back_owned(
    merged: &VersionedObject<'_>,
    pruned: Value,
    version: &str,
    owned: &Set,
    types: &TypeContext<'_>,
) -> Value {
    if version == merged.name {
        return merged.keeping(&pruned, owned);
    }
    let Some((object, ty)) = converted(&merged.object, version, types) else { return pruned };
    let Some((pruned_there, _)) = converted(&pruned, version, types) else { return pruned };
    let at = VersionedObject { schema: types.schema, ty, object, name: version };
    let kept = at.keeping(&pruned_there, owned);
    VersionedObject::of_object(kept, version, merged.name, types)
}

/// Converts an object to another version. Conversion goes through Go's structs, which always have
/// some fields.
fn converted(object: &Value, version: &str, types: &TypeContext<'_>) -> Option<(Value, TypeId)> {
    let (object, ty) = types.versions.convert(object, version)?;
    Some((normalize(types.schema, TypeRef::Type(ty), &object), ty))
}

/// An object converted to one of the versions of its kind.
struct VersionedObject<'a> {
    schema: &'a Schema,
    ty: TypeId,
    object: Value,
    name: &'a str,
}

impl<'a> VersionedObject<'a> {
    fn of(
        object: &Value,
        name: &'a str,
        types: &TypeContext<'a>,
        manager: &Manager<'_>,
    ) -> Option<Self> {
        let schema = types.schema;
        if name == manager.api_version {
            return Some(Self { schema, ty: types.ty, object: object.clone(), name });
        }
        let (object, ty) = converted(object, name, types)?;
        Some(Self { schema, ty, object, name })
    }

    /// Converts an object between versions. If conversion fails, the object is returned unchanged.
    fn of_object(object: Value, from: &str, to: &str, types: &TypeContext<'_>) -> Value {
        if from == to {
            return object;
        }
        converted(&object, to, types).map_or(object, |(object, _)| object)
    }

    fn type_ref(&self) -> TypeRef<'_> {
        TypeRef::Type(self.ty)
    }

    fn fields(&self) -> Set {
        self.fields_of(&self.object)
    }

    fn fields_of(&self, object: &Value) -> Set {
        field_set(self.schema, self.type_ref(), object)
    }

    fn named(&self, set: &Set) -> Set {
        ensure_named_fields_are_members(self.schema, Some(self.type_ref()), set)
    }

    /// This object reduced to the fields that are in the pruned one or owned.
    fn keeping(&self, pruned: &Value, owned: &Set) -> Value {
        let kept = self.named(&self.fields_of(pruned)).union(self.named(owned));
        self.without(&self.named(&self.fields()).difference(&kept))
    }

    fn without(&self, removed: &Set) -> Value {
        let left = remove_items(self.schema, self.type_ref(), &self.object, removed);
        left.unwrap_or_else(Value::object)
    }
}

impl TypeContext<'_> {
    fn type_in(&self, version: &str, manager: &Manager<'_>) -> Option<TypeId> {
        if version == manager.api_version {
            return Some(self.ty);
        }
        self.versions.type_of(version)
    }
}

/// Adapts all sets to the current schema: they may have been written before a list or object became
/// atomic.
fn reconcile_all(
    managed_fields: &mut ManagedFields,
    types: &TypeContext<'_>,
    manager: &Manager<'_>,
) {
    managed_fields.retain(|_, owner| {
        let Some(ty) = types.type_in(&owner.api_version, manager) else { return false };
        owner.set.reconcile(types.schema, TypeRef::Type(ty));
        true
    });
}

/// Removes the fields that are never owned: the object's identity and what the server sets itself.
fn strip(set: Set) -> Set {
    static STRIPPED: LazyLock<Set> = LazyLock::new(|| {
        Set::of(&[
            &["apiVersion"],
            &["kind"],
            &["metadata"],
            &["metadata", "name"],
            &["metadata", "namespace"],
            &["metadata", "creationTimestamp"],
            &["metadata", "selfLink"],
            &["metadata", "uid"],
            &["metadata", "clusterName"],
            &["metadata", "generation"],
            &["metadata", "managedFields"],
            &["metadata", "resourceVersion"],
        ])
    });
    set.difference(&STRIPPED)
}
