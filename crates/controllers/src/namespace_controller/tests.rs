//! Deletion of namespaces against the in-memory API.

use meta::{Value, value};

use super::*;
use crate::testing::FakeClient;

fn namespace(finalizers: &[&str]) -> Value {
    value!({
        "metadata": {"name": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"finalizers": (finalizers.to_vec())},
        "status": {"phase": "Terminating"},
    })
}

fn inside(name: &str, finalizer: Option<&str>) -> Value {
    let finalizers: Vec<&str> = finalizer.into_iter().collect();
    value!({"metadata": {"name": (name), "namespace": "n", "finalizers": (finalizers)}})
}

/// Reconciles the namespace once; returns the result, the API and the namespace.
async fn empty(fake: FakeClient) -> (ReconcileResult, Arc<FakeClient>, Value) {
    let fake = Arc::new(fake);
    let controller = NamespaceController::new(fake.clone(), Duration::ZERO);
    let next = controller.reconcile(&("".into(), "n".into())).await.unwrap();
    let namespace = fake.object("namespaces", "", "n");
    (next, fake, namespace)
}

fn fake(objects: impl IntoIterator<Item = (&'static str, Value)>) -> FakeClient {
    let fake = FakeClient::with_collection_deletes();
    fake.insert("namespaces", namespace(&["example.com/mine", "kubernetes"]));
    for (resource, object) in objects {
        fake.insert(resource, object);
    }
    fake
}

fn conditions(namespace: &Value) -> Vec<String> {
    let conditions = namespace.items_at(&["status", "conditions"]).iter();
    conditions
        .map(|condition| {
            let at = |field| condition.str_at(&[field]);
            format!("{} {} {}: {}", at("type"), at("status"), at("reason"), at("message"))
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_terminating_namespace_is_left_alone_for_the_grace() {
    let fake = Arc::new(fake([]));
    let grace = Duration::from_millis(250);
    let controller = NamespaceController::new(fake.clone(), grace);
    let key = ("".into(), "n".into());
    assert_eq!(controller.reconcile(&key).await.unwrap(), ReconcileResult::RequeueAfter(grace));
    tokio::time::advance(grace / 2).await;
    // An event may come earlier.
    assert_eq!(controller.reconcile(&key).await.unwrap(), ReconcileResult::RequeueAfter(grace / 2));
    tokio::time::advance(grace / 2).await;
    assert_eq!(controller.reconcile(&key).await.unwrap(), ReconcileResult::Done);
    let namespace = fake.object("namespaces", "", "n");
    assert_eq!(namespace.items_at(&["spec", "finalizers"]).len(), 1);
    controller.reconcile(&key).await.expect("nothing to do");
    assert!(controller.seen.lock().is_empty(), "forgotten");
}

#[tokio::test]
async fn an_empty_namespace_loses_its_own_finalizer_only() {
    let (next, _, namespace) = empty(fake([("configmaps", inside("a", None))])).await;
    assert_eq!(next, ReconcileResult::Done);
    assert_eq!(*namespace.at(&["spec", "finalizers"]).unwrap(), value!(["example.com/mine"]));
    assert_eq!(
        conditions(&namespace),
        [
            "NamespaceDeletionDiscoveryFailure False ResourcesDiscovered: All resources \
             successfully discovered",
            "NamespaceDeletionGroupVersionParsingFailure False ParsedGroupVersions: All legacy \
             kube types successfully parsed",
            "NamespaceDeletionContentFailure False ContentDeleted: All content successfully \
             deleted, may be waiting on finalization",
            "NamespaceContentRemaining False ContentRemoved: All content successfully removed",
            "NamespaceFinalizersRemaining False ContentHasNoFinalizers: All content-preserving \
             finalizers finished",
        ]
    );
}

#[tokio::test]
async fn objects_with_finalizers_are_counted_and_waited_for() {
    let stuck = Some("example.com/wait");
    let (next, fake, namespace) = empty(fake([
        ("configmaps", inside("a", stuck)),
        ("configmaps", inside("b", None)),
        ("widgets", inside("c", stuck)),
        ("widgets", inside("d", Some("example.com/other"))),
    ]))
    .await;
    assert_eq!(next, ReconcileResult::Requeue);
    assert_eq!(namespace.items_at(&["spec", "finalizers"]).len(), 2);
    assert_eq!(
        conditions(&namespace)[3..],
        [
            "NamespaceContentRemaining True SomeResourcesRemain: Some resources are remaining: \
             configmaps. has 1 resource instances, widgets.example.com has 2 resource instances",
            "NamespaceFinalizersRemaining True SomeFinalizersRemain: Some content in the namespace \
             has finalizers remaining: example.com/other in 1 resource instances, \
             example.com/wait in 2 resource instances",
        ]
    );
    // Once they are deleted, the conditions are False.
    for (resource, name) in [("configmaps", "a"), ("widgets", "c"), ("widgets", "d")] {
        fake.remove(resource, "n", name);
    }
    let controller = NamespaceController::new(fake.clone(), Duration::ZERO);
    assert_eq!(
        controller.reconcile(&("".into(), "n".into())).await.ok(),
        Some(ReconcileResult::Done)
    );
    let after = fake.object("namespaces", "", "n");
    assert!(conditions(&after)[3].starts_with("NamespaceContentRemaining False ContentRemoved"));
}

#[tokio::test]
async fn pods_are_deleted_first() {
    let (next, fake, _) = empty(fake([
        ("pods", inside("p", Some("example.com/wait"))),
        ("configmaps", inside("a", None)),
    ]))
    .await;
    assert_eq!(next, ReconcileResult::Requeue);
    assert_eq!(fake.object("configmaps", "n", "a").str_at(&["metadata", "name"]), "a");
}

#[tokio::test]
async fn failed_discovery_and_deletion_are_reported() {
    let mut unknown = fake([]);
    let version = "remote.example.com/v1".to_owned();
    let why = format!("stale GroupVersion discovery: {version}");
    unknown.undiscovered = vec![(version, why)];
    let (next, _, namespace) = empty(unknown).await;
    assert_eq!(next, ReconcileResult::Requeue);
    assert_eq!(
        conditions(&namespace)[0],
        "NamespaceDeletionDiscoveryFailure True DiscoveryFailed: Discovery failed for some groups, \
         1 failing: unable to retrieve the complete list of server APIs: remote.example.com/v1: \
         stale GroupVersion discovery: remote.example.com/v1"
    );
    let mut stuck = fake([("configmaps", inside("a", None))]);
    stuck.deletes_collections = false;
    let (next, _, namespace) = empty(stuck).await;
    assert_eq!(next, ReconcileResult::Requeue);
    let failure = &conditions(&namespace)[2];
    assert!(
        failure.starts_with(
            "NamespaceDeletionContentFailure True ContentDeletionFailed: Failed to delete all \
             resource types, 1 remaining: "
        ),
        "{failure}"
    );
}

#[tokio::test]
async fn a_namespace_that_is_not_being_deleted_is_not_touched() {
    let mut staying = namespace(&["kubernetes"]);
    staying.remove_at(&["metadata", "deletionTimestamp"]);
    for namespace in [staying, namespace(&["example.com/mine"])] {
        let fake = FakeClient::with_collection_deletes();
        fake.insert("namespaces", namespace.clone());
        fake.insert("configmaps", inside("a", None));
        let (next, fake, after) = empty(fake).await;
        assert_eq!((next, &after), (ReconcileResult::Done, &namespace));
        fake.object("configmaps", "n", "a");
    }
}
