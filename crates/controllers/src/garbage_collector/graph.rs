//! The graph of owner references. It holds only objects that have owners; an owner is a UID until the
//! API is asked about it. Most objects have no owner, so the graph stays small.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use meta::{Str, Value};

use crate::informer::{ObjectEvent, Resource};

/// Coordinates of an object, with the UID that distinguishes it from a later one of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) resource: Arc<Resource>,
    pub(super) namespace: Str,
    pub(super) name: Str,
    pub(super) uid: Str,
}

/// An entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) api_version: Str,
    pub(super) kind: Str,
    pub(super) name: Str,
    pub(super) uid: Str,
    /// `blockOwnerDeletion`: a foreground deletion of the owner waits for the dependent.
    pub(super) blocks: bool,
}

impl Owner {
    /// Coordinates of the owner. A reference with an existing UID but another name is dangling, so the
    /// UID alone does not identify an owner.
    fn identity(&self, namespace: &str) -> Str {
        format!("{}/{}/{namespace}/{}", self.api_version, self.kind, self.name).into()
    }
}

/// A dependent of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dependent {
    pub(super) object: Object,
    /// `blockOwnerDeletion` in its reference to the owner.
    pub(super) blocks: bool,
    /// It is in foreground deletion itself.
    pub(super) waits: bool,
}

pub(super) fn owners_of(metadata: &Value) -> Vec<Owner> {
    let references = metadata.items_at(&["ownerReferences"]).iter();
    let owner = |reference: &Value| Owner {
        api_version: Str::new(reference.str_at(&["apiVersion"])),
        kind: Str::new(reference.str_at(&["kind"])),
        name: Str::new(reference.str_at(&["name"])),
        uid: Str::new(reference.str_at(&["uid"])),
        blocks: reference.bool_at(&["blockOwnerDeletion"]),
    };
    references.map(owner).collect()
}

#[derive(Default)]
pub(super) struct Graph {
    /// Objects that have owners, by UID.
    nodes: HashMap<Str, (Object, Vec<Owner>)>,
    /// UIDs of dependents by the UID of their owner.
    dependents: HashMap<Str, HashSet<Str>>,
    /// Objects in foreground deletion or with the finalizer `orphan`.
    waiting: HashMap<Str, Object>,
    /// Owners that were found by a live read, by UID, with the coordinates of the references. Others
    /// have to be read.
    present: HashMap<Str, HashSet<Str>>,
    /// Owners that were deleted while a running reconciliation may still report them as present.
    departed: HashSet<Str>,
}

impl Graph {
    /// Applies an event; returns the objects to reconcile because of it.
    pub(super) fn observe(&mut self, event: &ObjectEvent) -> Vec<Object> {
        let metadata = &event.metadata;
        let object = Object {
            resource: event.resource.clone(),
            namespace: event.namespace.clone(),
            name: event.name.clone(),
            uid: Str::new(metadata.str_at(&["uid"])),
        };
        let mut requeue = self.remove_edges(&object.uid);
        if event.deleted {
            self.waiting.remove(&object.uid);
            self.present.remove(&object.uid);
            self.departed.insert(object.uid.clone());
            requeue.extend(
                self.dependents_of(&object.uid).into_iter().map(|dependent| dependent.object),
            );
            return requeue;
        }
        let owners = owners_of(metadata);
        let deleting = !metadata.str_at(&["deletionTimestamp"]).is_empty();
        let owners_present = owners.iter().all(|owner| self.is_present(owner, &object.namespace));
        for owner in &owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(object.uid.clone());
        }
        if !owners.is_empty() {
            self.nodes.insert(object.uid.clone(), (object.clone(), owners));
        }
        if deleting && waits_for_dependents(metadata) {
            self.waiting.insert(object.uid.clone(), object.clone());
            requeue.push(object);
        } else if !deleting && !owners_present {
            requeue.push(object);
        }
        requeue
    }

    /// Removes an object's edges to its owners; returns the owners that may have waited for it.
    fn remove_edges(&mut self, uid: &Str) -> Vec<Object> {
        let Some((_, owners)) = self.nodes.remove(uid) else { return Vec::new() };
        let mut waiting = Vec::new();
        for owner in owners {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(uid);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
            waiting.extend(self.waiting.get(&owner.uid).cloned());
        }
        waiting
    }

    /// The dependents of an object.
    pub(super) fn dependents_of(&self, uid: &str) -> Vec<Dependent> {
        let dependents = self.dependents.get(uid).into_iter().flatten();
        let nodes = dependents.filter_map(|dependent| self.nodes.get(dependent));
        nodes
            .map(|(object, owners)| Dependent {
                blocks: owners.iter().any(|owner| owner.uid == uid && owner.blocks),
                waits: self.waiting.contains_key(&object.uid),
                object: object.clone(),
            })
            .collect()
    }

    fn is_present(&self, owner: &Owner, namespace: &str) -> bool {
        let found = self.present.get(&owner.uid);
        found.is_some_and(|names| names.contains(&owner.identity(namespace)))
    }

    /// Records that a live read found this owner, unless it was deleted since.
    pub(super) fn record_present(&mut self, owner: &Owner, namespace: &str) {
        if !self.departed.contains(&owner.uid) {
            let names = self.present.entry(owner.uid.clone()).or_default();
            names.insert(owner.identity(namespace));
        }
    }

    /// To be called when no reconciliation is running: none can report a deleted owner any more.
    pub(super) fn forget_departed(&mut self) {
        self.departed.clear();
    }

    /// Events were missed: every owner has to be read again.
    pub(super) fn invalidate_owners(&mut self) -> Vec<Object> {
        self.present.clear();
        let nodes = self.nodes.values().map(|(object, _)| object);
        nodes.chain(self.waiting.values()).cloned().collect()
    }
}

pub(super) const ORPHAN: &str = "orphan";
pub(super) const FOREGROUND: &str = "foregroundDeletion";

pub(super) fn has_finalizer(metadata: &Value, name: &str) -> bool {
    metadata.items_at(&["finalizers"]).iter().any(|finalizer| finalizer.as_str() == Some(name))
}

fn waits_for_dependents(metadata: &Value) -> bool {
    has_finalizer(metadata, ORPHAN) || has_finalizer(metadata, FOREGROUND)
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    fn event(name: &str, deleted: bool, metadata: Value) -> ObjectEvent {
        let mut metadata = metadata;
        metadata.set_at(&["uid"], format!("uid-{name}"));
        let resource = Arc::new(Resource::default());
        ObjectEvent { resource, namespace: "n".into(), name: name.into(), deleted, metadata }
    }

    fn owned_by(owner: &str, blocks: bool) -> Value {
        value!({"ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": (owner),
            "uid": (format!("uid-{owner}")), "blockOwnerDeletion": (blocks)}]})
    }

    fn names(objects: &[Object]) -> Vec<&str> {
        objects.iter().map(|object| object.name.as_str()).collect()
    }

    #[test]
    fn a_dependent_is_reconciled_until_its_owner_is_known_and_when_the_owner_is_deleted() {
        let mut graph = Graph::default();
        assert_eq!(names(&graph.observe(&event("a", false, owned_by("owner", false)))), ["a"]);
        let owner = &owners_of(&owned_by("owner", false))[0];
        graph.record_present(owner, "n");
        let mut misnamed = owned_by("other", false);
        misnamed.at_mut(&["ownerReferences"]).unwrap().as_array_mut().unwrap()[0]
            .set_at(&["uid"], "uid-owner");
        assert_eq!(names(&graph.observe(&event("x", false, misnamed))), ["x"]);
        graph.observe(&event("x", true, Value::object()));
        assert_eq!(names(&graph.observe(&event("b", false, owned_by("owner", false)))), [""; 0]);
        let mut requeue = graph.observe(&event("owner", true, Value::object()));
        requeue.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!(names(&requeue), ["a", "b"]);
        // A live read from before the deletion does not count.
        graph.record_present(owner, "n");
        assert_eq!(names(&graph.observe(&event("c", false, owned_by("owner", false)))), ["c"]);
        graph.observe(&event("a", true, owned_by("owner", false)));
        assert_eq!(graph.dependents_of("uid-owner").len(), 2);
    }

    #[test]
    fn a_waiting_owner_is_reconciled_when_a_dependent_is_deleted() {
        let mut graph = Graph::default();
        graph.observe(&event("a", false, owned_by("owner", true)));
        let waiting = value!({"deletionTimestamp": "t", "finalizers": ["foregroundDeletion"]});
        assert_eq!(names(&graph.observe(&event("owner", false, waiting))), ["owner"]);
        assert!(graph.dependents_of("uid-owner")[0].blocks);
        let gone = event("a", true, owned_by("owner", true));
        assert_eq!(names(&graph.observe(&gone)), ["owner"]);
        assert_eq!(graph.dependents_of("uid-owner"), []);
    }
}
