//! Who belongs to whom. Only objects that have owners are known here; an owner is just a UID until
//! somebody asks the API about it. Most objects have no owner, so this stays small.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use meta::{Str, Value};

use crate::informer::{ObjectEvent, Resource};

/// An object by its name, and by the UID that tells it from another one of that name.
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
    /// In a foreground deletion the owner waits for this dependent.
    pub(super) blocks: bool,
}

impl Owner {
    /// Where it is looked for. Anybody can write down a UID that exists; only together with the right
    /// name does it make an owner.
    fn identity(&self, namespace: &str) -> Str {
        format!("{}/{}/{namespace}/{}", self.api_version, self.kind, self.name).into()
    }
}

/// Somebody who belongs to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dependent {
    pub(super) object: Object,
    /// In a foreground deletion it has to be waited for.
    pub(super) blocks: bool,
    /// Is being deleted itself, and waits for what belongs to it.
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
    /// Who names this UID as an owner.
    dependents: HashMap<Str, HashSet<Str>>,
    /// Objects whose deletion waits for what becomes of their dependents.
    waiting: HashMap<Str, Object>,
    /// Owners that are known to be there, by UID, each with the names under which it was found. Whoever
    /// is not in here has to be asked for.
    present: HashMap<Str, HashSet<Str>>,
    /// Owners that went while somebody may still be about to report them present.
    departed: HashSet<Str>,
}

impl Graph {
    /// Takes note of a change; answers the objects that have to be looked at because of it.
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
        let settled = owners.iter().all(|owner| self.is_present(owner, &object.namespace));
        for owner in &owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(object.uid.clone());
        }
        if !owners.is_empty() {
            self.nodes.insert(object.uid.clone(), (object.clone(), owners));
        }
        if deleting && waits_for_dependents(metadata) {
            self.waiting.insert(object.uid.clone(), object.clone());
            requeue.push(object);
        } else if !deleting && !settled {
            requeue.push(object);
        }
        requeue
    }

    /// Forgets what an object was said to belong to; owners that may have waited for it are answered.
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

    /// Who belongs to this UID.
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

    /// The API had this owner for a dependent in this namespace, unless it went since it was asked.
    pub(super) fn record_present(&mut self, owner: &Owner, namespace: &str) {
        if !self.departed.contains(&owner.uid) {
            let names = self.present.entry(owner.uid.clone()).or_default();
            names.insert(owner.identity(namespace));
        }
    }

    /// Nobody is asking the API any more, so nobody can report what is out of date.
    pub(super) fn forget_departed(&mut self) {
        self.departed.clear();
    }

    /// Changes were missed: nothing is certain, everybody has to be looked at.
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
    fn a_dependent_is_looked_at_until_its_owner_is_known_and_again_when_it_goes() {
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
        // Whoever asked before the owner went doesn't count any more.
        graph.record_present(owner, "n");
        assert_eq!(names(&graph.observe(&event("c", false, owned_by("owner", false)))), ["c"]);
        graph.observe(&event("a", true, owned_by("owner", false)));
        assert_eq!(graph.dependents_of("uid-owner").len(), 2);
    }

    #[test]
    fn an_owner_that_waits_is_looked_at_when_a_dependent_goes() {
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
