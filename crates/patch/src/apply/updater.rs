//! Who owns what after a write: the heart of server-side apply.

use std::{collections::BTreeMap, sync::LazyLock};

use meta::Value;
use schema::{Schema, TypeId};

use super::atom::{Place, normal};
use super::compare::{Comparison, New, compare};
use super::managed_fields::{Owner, Owners, cap_updaters};
use super::merge::merge;
use super::path::same_value;
use super::set::Set;
use super::typed::{field_set, reconcile, remove_items, with_named_fields};
use super::{ApplyError, Conflict, Manager, Typing, conflict};

/// The writer takes what it changed from everyone else.
pub(super) fn update(
    live: &Value,
    new: &Value,
    owners: &mut Owners,
    typing: &Typing<'_>,
    manager: &Manager<'_>,
) {
    reconcile_all(owners, typing, manager);
    let (comparison, _) = take_over(live, new, owners, None, typing, manager);
    let set = strip(typing.fields.apply(comparison.changed()));
    if !set.is_empty() {
        let writer = manager.owner(false);
        let owner = owners.entry(writer.id()).or_insert(writer);
        owner.set = std::mem::take(&mut owner.set).union(set);
        manager.now.clone_into(&mut owner.time);
    }
    cap_updaters(owners);
}

/// The merged object and its owners. Where nothing changed the object is the live one and times stay.
pub(super) fn apply(
    live: &Value,
    config: &Value,
    mut owners: Owners,
    typing: &Typing<'_>,
    manager: &Manager<'_>,
    force: bool,
) -> Result<(Value, Owners), ApplyError> {
    let (schema, root) = (typing.schema, Place::Type(typing.ty));
    reconcile_all(&mut owners, typing, manager);
    let merged = merge(schema, root, live, config)
        .map_err(|why| ApplyError::Untyped(format!("failed to merge config: {why}")))?;

    let applier = manager.owner(true);
    let id = applier.id();
    let last = owners.get(&id).cloned();
    let set = typing.fields.apply(field_set(schema, root, config));
    let time = last.as_ref().map(|last| last.time.clone()).unwrap_or_default();
    owners.insert(id.clone(), Owner { time, set, ..applier });

    let new = prune(merged, &owners, last.as_ref(), &id, typing, manager);
    let unchanged = same_value(live, &new);
    // Where nothing changed there is nothing to be taken from anyone.
    if !unchanged {
        let (_, conflicts) =
            take_over(live, &new, &mut owners, Some((&id, force)), typing, manager);
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
    }
    if let Some(owner) = owners.get_mut(&id) {
        owner.set = strip(std::mem::take(&mut owner.set));
    }
    owners.retain(|_, owner| !owner.set.is_empty());
    if unchanged {
        return Ok((live.clone(), owners));
    }
    if let Some(owner) = owners.get_mut(&id) {
        manager.now.clone_into(&mut owner.time);
    }
    Ok((new, owners))
}

/// Takes changed and removed fields from everyone but the applier. Without force, an applier gets the
/// conflicts instead and nothing is taken.
fn take_over(
    live: &Value,
    new: &Value,
    owners: &mut Owners,
    applier: Option<(&str, bool)>,
    typing: &Typing<'_>,
    manager: &Manager<'_>,
) -> (Comparison, Vec<Conflict>) {
    let kind = if applier.is_some() { New::Merged } else { New::Whole };
    let mut comparison = compare(typing.schema, Place::Type(typing.ty), live, new, kind);
    comparison.filter(|set| typing.fields.apply(set));
    let is_applier = |id: &str| applier.is_some_and(|(applier, _)| applier == id);
    if owners.keys().all(|id| is_applier(id)) {
        return (comparison, Vec::new());
    }
    let mut versions = BTreeMap::from([(manager.api_version.to_owned(), Some(comparison.clone()))]);

    let mut conflicts = Vec::new();
    let mut losses: Vec<(String, Option<Set>)> = Vec::new();
    for (id, owner) in owners.iter().filter(|(id, _)| !is_applier(id)) {
        let compared = versions.entry(owner.api_version.clone()).or_insert_with(|| {
            let (old, ty) = typing.versions.convert(live, &owner.api_version)?;
            let (new, _) = typing.versions.convert(new, &owner.api_version)?;
            // What was converted went through Go's structs.
            let mut compared = compare(typing.schema, Place::Type(ty), &old, &new, New::Whole);
            compared.filter(|set| typing.fields.apply(set));
            Some(compared)
        });
        let Some(compared) = compared else {
            // A version that is not served any more has no owners.
            losses.push((id.clone(), None));
            continue;
        };
        let taken = owner.set.intersection(&compared.modified);
        let taken = taken.union(owner.set.intersection(&compared.added));
        conflicts.extend(taken.paths().into_iter().map(|path| conflict(owner, path)));
        if !taken.is_empty() || !owner.set.intersection(&compared.removed).is_empty() {
            let left = owner.set.clone().difference(&taken).difference(&compared.removed);
            losses.push((id.clone(), Some(left)));
        }
    }
    match applier {
        Some((_, false)) if !conflicts.is_empty() => return (comparison, conflicts),
        _ => conflicts.clear(),
    }
    for (id, left) in losses {
        match (owners.get_mut(&id), left) {
            (Some(owner), Some(left)) => owner.set = left,
            _ => drop(owners.remove(&id)),
        }
    }
    owners.retain(|_, owner| !owner.set.is_empty());
    (comparison, conflicts)
}

/// Removes what the applier mentioned last time, doesn't mention now, and nobody else owns.
fn prune(
    merged: Value,
    owners: &Owners,
    last: Option<&Owner>,
    applier: &str,
    typing: &Typing<'_>,
    manager: &Manager<'_>,
) -> Value {
    let Some(last) = last.filter(|last| !last.set.is_empty()) else { return merged };
    // Mostly an applier mentions again what it mentioned before, and gives nothing up.
    if last.api_version == manager.api_version
        && owners.get(applier).is_some_and(|applier| applier.set.includes(&last.set))
    {
        return merged;
    }
    let Some(at_last) = Version::of(&merged, &last.api_version, typing, manager) else {
        return merged;
    };
    let mut pruned = at_last.without(&at_last.named(&last.set));

    let mut owned_by_version: BTreeMap<&str, Set> = BTreeMap::new();
    for owner in owners.values() {
        let owned = owned_by_version.entry(&owner.api_version).or_default();
        *owned = std::mem::take(owned).union(owner.set.clone());
    }
    // The version of the last apply goes first: conversion may need what it gives back.
    let first = owned_by_version.remove_entry(last.api_version.as_str());
    for (version, owned) in first.into_iter().chain(owned_by_version) {
        pruned = add_back_owned(&at_last, pruned, version, &owned, typing);
    }

    // What was removed must have been the applier's: the rest belongs to nobody and stays.
    let kept = at_last.named(&at_last.fields_of(&pruned));
    let removed = at_last.named(&at_last.fields()).difference(&kept);
    let pruned = at_last.without(&removed.intersection(&at_last.named(&last.set)));
    Version::of_object(pruned, &last.api_version, manager.api_version, typing)
}

/// Gives back what somebody owns of what was removed.
fn add_back_owned(
    merged: &Version<'_>,
    pruned: Value,
    version: &str,
    owned: &Set,
    typing: &Typing<'_>,
) -> Value {
    if version == merged.name {
        return merged.keeping(&pruned, owned);
    }
    let Some((object, ty)) = converted(&merged.object, version, typing) else { return pruned };
    let Some((pruned_there, _)) = converted(&pruned, version, typing) else { return pruned };
    let at = Version { schema: typing.schema, ty, object, name: version };
    let kept = at.keeping(&pruned_there, owned);
    Version::of_object(kept, version, merged.name, typing)
}

/// An object in another version. Conversion goes through Go's structs, which always have some fields.
fn converted(object: &Value, version: &str, typing: &Typing<'_>) -> Option<(Value, TypeId)> {
    let (object, ty) = typing.versions.convert(object, version)?;
    Some((normal(typing.schema, Place::Type(ty), &object), ty))
}

/// An object in one of its versions.
struct Version<'a> {
    schema: &'a Schema,
    ty: TypeId,
    object: Value,
    name: &'a str,
}

impl<'a> Version<'a> {
    fn of(
        object: &Value,
        name: &'a str,
        typing: &Typing<'a>,
        manager: &Manager<'_>,
    ) -> Option<Self> {
        let schema = typing.schema;
        if name == manager.api_version {
            return Some(Self { schema, ty: typing.ty, object: object.clone(), name });
        }
        let (object, ty) = converted(object, name, typing)?;
        Some(Self { schema, ty, object, name })
    }

    /// Converts an object that is in one version into another. What can't be converted stays as it is.
    fn of_object(object: Value, from: &str, to: &str, typing: &Typing<'_>) -> Value {
        if from == to {
            return object;
        }
        converted(&object, to, typing).map_or(object, |(object, _)| object)
    }

    fn place(&self) -> Place<'_> {
        Place::Type(self.ty)
    }

    fn fields(&self) -> Set {
        self.fields_of(&self.object)
    }

    fn fields_of(&self, object: &Value) -> Set {
        field_set(self.schema, self.place(), object)
    }

    fn named(&self, set: &Set) -> Set {
        with_named_fields(self.schema, Some(self.place()), set)
    }

    /// This object with what is in the pruned one or owned, and nothing else.
    fn keeping(&self, pruned: &Value, owned: &Set) -> Value {
        let kept = self.named(&self.fields_of(pruned)).union(self.named(owned));
        self.without(&self.named(&self.fields()).difference(&kept))
    }

    fn without(&self, removed: &Set) -> Value {
        let left = remove_items(self.schema, self.place(), &self.object, removed);
        left.unwrap_or_else(Value::object)
    }
}

impl Typing<'_> {
    fn type_in(&self, version: &str, manager: &Manager<'_>) -> Option<TypeId> {
        if version == manager.api_version {
            return Some(self.ty);
        }
        self.versions.type_of(version)
    }
}

/// Sets may have been written before a list or an object got one owner.
fn reconcile_all(owners: &mut Owners, typing: &Typing<'_>, manager: &Manager<'_>) {
    owners.retain(|_, owner| {
        let Some(ty) = typing.type_in(&owner.api_version, manager) else { return false };
        if let Some(set) = reconcile(typing.schema, Place::Type(ty), &owner.set) {
            owner.set = set;
        }
        true
    });
}

/// Without what nobody owns: the identity of an object and what the server writes itself.
fn strip(set: Set) -> Set {
    static NOBODYS: LazyLock<Set> = LazyLock::new(|| {
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
    set.difference(&NOBODYS)
}
