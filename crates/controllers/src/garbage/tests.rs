//! What becomes of objects, against an API that is a map.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use meta::{ApiError, GroupResource, GroupVersionResource, Value, value};

use super::{attend::attend, graph::Object};
use crate::{Api, Pinned, Resource, Target};

#[derive(Default)]
struct Fake {
    objects: Mutex<BTreeMap<String, Value>>,
    /// What was deleted, and how.
    deleted: Mutex<Vec<(String, String)>>,
}

fn ready<'a, T: Send + 'a>(value: T) -> Pinned<'a, T> {
    Box::pin(std::future::ready(value))
}

fn missing(target: &Target) -> ApiError {
    ApiError::not_found(GroupResource::new("", "things"), target.name.as_str())
}

impl Api for Fake {
    fn get<'a>(&'a self, target: &'a Target) -> Pinned<'a, Result<Value, ApiError>> {
        let found = self.objects.lock().unwrap().get(&target.name).cloned();
        ready(found.ok_or_else(|| missing(target)))
    }

    fn list<'a>(&'a self, _target: &'a Target) -> Pinned<'a, Result<Vec<Value>, ApiError>> {
        ready(Ok(self.objects.lock().unwrap().values().cloned().collect()))
    }

    fn create<'a>(
        &'a self,
        _target: &'a Target,
        object: &'a Value,
    ) -> Pinned<'a, Result<Value, ApiError>> {
        ready(Ok(object.clone()))
    }

    fn update<'a>(
        &'a self,
        target: &'a Target,
        object: &'a Value,
    ) -> Pinned<'a, Result<Value, ApiError>> {
        self.objects.lock().unwrap().insert(target.name.clone(), object.clone());
        ready(Ok(object.clone()))
    }

    fn apply<'a>(
        &'a self,
        target: &'a Target,
        _object: &'a Value,
        _manager: &'a str,
    ) -> Pinned<'a, Result<Value, ApiError>> {
        ready(Err(missing(target)))
    }

    fn delete<'a>(
        &'a self,
        target: &'a Target,
        options: &'a Value,
    ) -> Pinned<'a, Result<(), ApiError>> {
        let policy = options.str_at(&["propagationPolicy"]).to_owned();
        self.deleted.lock().unwrap().push((target.name.clone(), policy));
        ready(Ok(()))
    }

    fn delete_collection<'a>(&'a self, target: &'a Target) -> Pinned<'a, Result<(), ApiError>> {
        ready(Err(missing(target)))
    }

    fn resource_of(&self, _api_version: &str, kind: &str) -> Option<Arc<Resource>> {
        (kind == "Thing").then(|| Arc::new(Resource { namespaced: true, ..Resource::default() }))
    }

    fn namespaced_resources(&self) -> Vec<GroupVersionResource> {
        Vec::new()
    }
}

fn object(name: &str) -> Object {
    let resource = Arc::new(Resource { namespaced: true, ..Resource::default() });
    let uid = format!("uid-{name}").into();
    Object { resource, namespace: "n".into(), name: name.into(), uid }
}

/// `owners` are names, or `kind/name`.
fn thing(name: &str, owners: &[&str]) -> Value {
    let references: Vec<Value> = owners
        .iter()
        .map(|owner| {
            let (kind, name) = owner.split_once('/').unwrap_or(("Thing", owner));
            value!({"apiVersion": "v1", "kind": (kind), "name": (name),
                "uid": (format!("uid-{name}")), "blockOwnerDeletion": true})
        })
        .collect();
    value!({"metadata": {"name": (name), "uid": (format!("uid-{name}")), "ownerReferences": (references)}})
}

fn deleting(mut object: Value, finalizer: &str) -> Value {
    object.set_at(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
    object.set_at(&["metadata", "finalizers"], vec![finalizer]);
    object
}

/// Looks at `name` and answers what was deleted how, the owners it has left, and its finalizers.
async fn look_at(
    name: &str,
    objects: &[Value],
    dependents: &[&str],
) -> (Vec<(String, String)>, Fake) {
    let fake = Fake::default();
    for object in objects {
        let name = object.str_at(&["metadata", "name"]).to_owned();
        fake.objects.lock().unwrap().insert(name, object.clone());
    }
    let dependents = dependents.iter().map(|name| (object(name), true)).collect();
    attend(&fake, &object(name), dependents).await.unwrap();
    let deleted = fake.deleted.lock().unwrap().clone();
    (deleted, fake)
}

fn owners(fake: &Fake, name: &str) -> Vec<String> {
    let objects = fake.objects.lock().unwrap();
    let references = objects[name].items_at(&["metadata", "ownerReferences"]).to_vec();
    references.iter().map(|reference| reference.str_at(&["name"]).to_owned()).collect()
}

#[tokio::test]
async fn an_object_goes_when_its_last_owner_is_gone() {
    let there = thing("there", &[]);
    let waiting = deleting(thing("waiting", &[]), "foregroundDeletion");
    let mut other = thing("other", &[]);
    other.set_at(&["metadata", "uid"], "another");
    // Owners, whether it has dependents, how it is deleted, the owners it keeps.
    let cases: [(&[&str], bool, &str, &[&str]); 8] = [
        (&[], false, "", &[]),
        (&["there"], false, "", &["there"]),
        (&["gone"], false, "Background", &["gone"]),
        // Another object of that name is not the owner.
        (&["other"], false, "Background", &["other"]),
        (&["there", "gone"], false, "", &["there"]),
        (&["waiting"], false, "Background", &["waiting"]),
        (&["waiting"], true, "Foreground", &["waiting"]),
        // Of a kind that nobody serves: nothing is known, nothing is done.
        (&["Mystery/x", "gone"], false, "", &["x"]),
    ];
    for (owned_by, has_dependents, policy, kept) in cases {
        let objects = [there.clone(), waiting.clone(), other.clone(), thing("it", owned_by)];
        let dependents: &[&str] = if has_dependents { &["child"] } else { &[] };
        let (deleted, fake) = look_at("it", &objects, dependents).await;
        let expected: Vec<(String, String)> =
            if policy.is_empty() { vec![] } else { vec![("it".to_owned(), policy.to_owned())] };
        assert_eq!(deleted, expected, "{owned_by:?}");
        assert_eq!(owners(&fake, "it"), kept, "{owned_by:?}");
    }
}

#[tokio::test]
async fn a_foreground_deletion_waits_for_dependents() {
    let owner = deleting(thing("owner", &[]), "foregroundDeletion");
    let finalizers = |fake: &Fake| {
        fake.objects.lock().unwrap()["owner"].items_at(&["metadata", "finalizers"]).len()
    };
    let objects = [owner, thing("child", &["owner"])];
    let (_, fake) = look_at("owner", &objects, &["child"]).await;
    assert_eq!(finalizers(&fake), 1);
    let (_, fake) = look_at("owner", &objects, &[]).await;
    assert_eq!(finalizers(&fake), 0);
}

#[tokio::test]
async fn orphans_stay_behind_without_their_owner() {
    let owner = deleting(thing("owner", &[]), "orphan");
    let objects = [owner, thing("child", &["owner", "there"])];
    let (deleted, fake) = look_at("owner", &objects, &["child"]).await;
    assert_eq!(deleted, []);
    assert_eq!(owners(&fake, "child"), ["there"]);
    let objects = fake.objects.lock().unwrap();
    assert!(objects["owner"].items_at(&["metadata", "finalizers"]).is_empty());
}
