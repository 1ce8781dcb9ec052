//! Garbage collection against the in-memory API.

use std::sync::Arc;

use meta::{Value, value};

use super::{
    graph::{Dependent, Object},
    reconcile::reconcile,
};
use crate::{Resource, testing::FakeClient};

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
    value!({"metadata": {"name": (name), "namespace": "n", "uid": (format!("uid-{name}")), "ownerReferences": (references)}})
}

fn deleting(mut object: Value, finalizer: &str) -> Value {
    object.set_at(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
    object.set_at(&["metadata", "finalizers"], vec![finalizer]);
    object
}

/// Reconciles `name`; returns the deletions with their propagation policies.
async fn reconcile_object(
    name: &str,
    objects: &[Value],
    dependents: &[&str],
) -> (Vec<(String, String)>, Arc<FakeClient>) {
    let fake = FakeClient::new(objects.iter().map(|object| ("", object.clone())));
    let dependent = |name: &&str| Dependent {
        object: object(name),
        blocks: true,
        waits: name.contains("wait"),
    };
    reconcile(&*fake, &object(name), dependents.iter().map(dependent).collect()).await.unwrap();
    (fake.deleted(), fake)
}

fn owners(fake: &FakeClient, name: &str) -> Vec<String> {
    let object = fake.object("", "n", name);
    let references = object.items_at(&["metadata", "ownerReferences"]);
    references.iter().map(|reference| reference.str_at(&["name"]).to_owned()).collect()
}

#[tokio::test]
async fn an_object_is_deleted_with_its_last_owner() {
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
        // The owner's kind is not served: nothing is done.
        (&["Mystery/x", "gone"], false, "", &["x"]),
    ];
    for (owned_by, has_dependents, policy, kept) in cases {
        let objects = [there.clone(), waiting.clone(), other.clone(), thing("it", owned_by)];
        let dependents: &[&str] = if has_dependents { &["child"] } else { &[] };
        let (deleted, fake) = reconcile_object("it", &objects, dependents).await;
        let expected: Vec<(String, String)> =
            if policy.is_empty() { vec![] } else { vec![("it".to_owned(), policy.to_owned())] };
        assert_eq!(deleted, expected, "{owned_by:?}");
        assert_eq!(owners(&fake, "it"), kept, "{owned_by:?}");
    }
}

#[tokio::test]
async fn a_foreground_deletion_waits_for_dependents() {
    let owner = deleting(thing("owner", &[]), "foregroundDeletion");
    let finalizers = |fake: &FakeClient| {
        fake.object("", "n", "owner").items_at(&["metadata", "finalizers"]).len()
    };
    let objects = [owner, thing("child", &["owner"])];
    let (_, fake) = reconcile_object("owner", &objects, &["child"]).await;
    assert_eq!(finalizers(&fake), 1);
    let (_, fake) = reconcile_object("owner", &objects, &[]).await;
    assert_eq!(finalizers(&fake), 0);
}

#[tokio::test]
async fn orphans_stay_without_the_owner_reference() {
    let owner = deleting(thing("owner", &[]), "orphan");
    let objects = [owner, thing("child", &["owner", "there"])];
    let (deleted, fake) = reconcile_object("owner", &objects, &["child"]).await;
    assert_eq!(deleted, []);
    assert_eq!(owners(&fake, "child"), ["there"]);
    let owner = fake.object("", "n", "owner");
    assert!(owner.items_at(&["metadata", "finalizers"]).is_empty());
}

#[tokio::test]
async fn a_cycle_of_foreground_deletions_is_broken() {
    let owner = deleting(thing("owner", &[]), "foregroundDeletion");
    let objects = [owner, thing("it", &["owner"])];
    let (deleted, fake) = reconcile_object("it", &objects, &["waiting"]).await;
    assert_eq!(deleted, [("it".to_owned(), "Foreground".to_owned())]);
    let it = fake.object("", "n", "it");
    let references = it.items_at(&["metadata", "ownerReferences"]);
    assert!(references.iter().all(|reference| !reference.bool_at(&["blockOwnerDeletion"])));
    // Without a cycle the owner keeps waiting.
    let (_, fake) = reconcile_object("it", &objects, &["child"]).await;
    let it = fake.object("", "n", "it");
    assert!(it.items_at(&["metadata", "ownerReferences"])[0].bool_at(&["blockOwnerDeletion"]));
}

#[tokio::test]
async fn a_cluster_scoped_object_cannot_have_a_namespaced_owner() {
    let mut it = thing("it", &["gone"]);
    it.remove_at(&["metadata", "namespace"]);
    let fake = FakeClient::new([("", it)]);
    let resource = Arc::new(Resource { namespaced: false, ..Resource::default() });
    let it = Object { resource, namespace: "".into(), ..object("it") };
    reconcile(&*fake, &it, Vec::new()).await.unwrap();
    assert_eq!(fake.deleted(), []);
    // A cluster-scoped owner may own objects in any namespace.
    let fake = FakeClient::new([("", thing("it", &["ClusterThing/gone"]))]);
    reconcile(&*fake, &object("it"), Vec::new()).await.unwrap();
    assert_eq!(fake.deleted(), [("it".to_owned(), "Background".to_owned())]);
}

#[tokio::test]
async fn a_foreground_deletion_includes_dependents_that_do_not_block() {
    let fake = FakeClient::new([("", deleting(thing("owner", &[]), "foregroundDeletion"))]);
    let dependents = [("a", true), ("b", false)];
    let dependents =
        dependents.map(|(name, blocks)| Dependent { object: object(name), blocks, waits: false });
    let reconciled = reconcile(&*fake, &object("owner"), dependents.to_vec()).await.unwrap();
    let requeue: Vec<_> = reconciled.requeue.iter().map(|object| &*object.name).collect();
    assert_eq!(requeue, ["a", "b"]);
}
