//! kube-rs, the client that controllers written in Rust use.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt, TryStreamExt};
use integration::eventually::PATIENCE;
use integration::{Shared, shared};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, Service};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, ObjectMeta, Patch,
    PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{self, finalizer};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Discovery, Resource, ResourceExt};
use serde_json::json;

async fn setup(purpose: &str) -> (Shared, Client, String) {
    let server = shared();
    let namespace = server.namespace(purpose);
    let client = server.kube().await;
    (server, client, namespace)
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("key".to_owned(), value.to_owned())])),
        ..ConfigMap::default()
    }
}

/// The next item of a stream that has to come.
async fn next<T, E: Debug>(stream: &mut (impl Stream<Item = Result<T, E>> + Unpin)) -> T {
    let item = tokio::time::timeout(PATIENCE, stream.next()).await.expect("an event comes in time");
    item.expect("the stream goes on").expect("the stream is fine")
}

#[track_caller]
fn code<T: Debug>(result: Result<T, kube::Error>) -> (u16, String) {
    match result.expect_err("the server refuses") {
        kube::Error::Api(status) => (status.code, status.reason.clone()),
        other => panic!("not an answer of the server: {other:?}"),
    }
}

/// Create, get, list, replace, patch, delete: for any kind there is.
async fn walk<K>(client: &Client, namespace: &str, object: serde_json::Value)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug,
    K: serde::de::DeserializeOwned + serde::Serialize,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let object: K = serde_json::from_value(object).expect("the test's object is well-formed");
    let name = object.name_any();
    let created = api.create(&PostParams::default(), &object).await.expect("it is created");
    assert!(created.uid().is_some() && created.resource_version().is_some());
    let mut read = api.get(&name).await.expect("it is there");
    assert_eq!(read.uid(), created.uid());
    assert_eq!(
        api.list(&ListParams::default().fields(&format!("metadata.name={name}")))
            .await
            .expect("a list")
            .items
            .len(),
        1
    );

    read.labels_mut().insert("step".to_owned(), "replaced".to_owned());
    let replaced = api.replace(&name, &PostParams::default(), &read).await.expect("it is replaced");
    assert_ne!(replaced.resource_version(), created.resource_version());
    let patch = Patch::Merge(json!({"metadata": {"labels": {"step": "patched"}}}));
    let patched = api.patch(&name, &PatchParams::default(), &patch).await.expect("it is patched");
    assert_eq!(patched.labels()["step"], "patched");
    api.delete(&name, &DeleteParams::background().grace_period(0)).await.expect("it is deleted");
    assert_eq!(api.get_opt(&name).await.expect("an answer").map(|object| object.uid()), None);
}

#[tokio::test]
async fn typed_objects_live_their_lives() {
    let (_server, client, namespace) = setup("kube-crud").await;
    let containers = json!([{"name": "c", "image": "nginx"}]);
    let template =
        json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": containers}});
    let meta = |name: &str| json!({"name": name});
    walk::<ConfigMap>(&client, &namespace, json!({"metadata": meta("cm"), "data": {"a": "b"}}))
        .await;
    walk::<Secret>(&client, &namespace, json!({"metadata": meta("s"), "stringData": {"a": "b"}}))
        .await;
    walk::<Pod>(
        &client,
        &namespace,
        json!({"metadata": meta("p"), "spec": {"containers": containers}}),
    )
    .await;
    walk::<Service>(
        &client,
        &namespace,
        json!({"metadata": meta("svc"), "spec": {"ports": [{"port": 80}]}}),
    )
    .await;
    walk::<Deployment>(&client, &namespace, json!({"metadata": meta("d"), "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template}})).await;
    let job_template = json!({"spec": {"containers": containers, "restartPolicy": "Never"}});
    walk::<Job>(
        &client,
        &namespace,
        json!({"metadata": meta("j"), "spec": {"template": job_template}}),
    )
    .await;
}

#[tokio::test]
async fn cluster_wide_objects_need_no_namespace() {
    let (_server, client, _) = setup("kube-cluster").await;
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let role: ClusterRole = serde_json::from_value(json!({
        "metadata": {"name": "kube-rs-test"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    }))
    .expect("a role");
    let created = roles.create(&PostParams::default(), &role).await.expect("it is created");
    assert_eq!(created.rules, role.rules);
    roles.delete("kube-rs-test", &DeleteParams::default()).await.expect("it is deleted");
    let namespaces: Api<Namespace> = Api::all(client);
    assert_eq!(code(namespaces.get("nope").await), (404, "NotFound".to_owned()));
}

#[tokio::test]
async fn a_stale_version_conflicts() {
    let (_server, client, namespace) = setup("kube-conflict").await;
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let post = PostParams::default();
    let stale = api.create(&post, &config_map("cm", "one")).await.expect("it is created");
    assert_eq!(
        code(api.create(&post, &config_map("cm", "one")).await),
        (409, "AlreadyExists".to_owned())
    );
    let mut fresh = stale.clone();
    fresh.data = config_map("cm", "two").data;
    api.replace("cm", &post, &fresh).await.expect("no conflict");
    assert_eq!(code(api.replace("cm", &post, &stale).await), (409, "Conflict".to_owned()));
    // Without a version the last writer wins.
    let last = api
        .replace("cm", &post, &config_map("cm", "three"))
        .await
        .expect("no version is asked for");
    assert_eq!(last.data, config_map("cm", "three").data);
}

#[tokio::test]
async fn lists_are_paged() {
    let (_server, client, namespace) = setup("kube-pages").await;
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    for n in 0..11 {
        let mut object = config_map(&format!("cm-{n:02}"), "x");
        object.labels_mut().insert("page".to_owned(), "yes".to_owned());
        api.create(&PostParams::default(), &object).await.expect("it is created");
    }
    let (mut names, mut pages) = (Vec::new(), 0);
    let mut params = ListParams::default().limit(4).labels("page=yes");
    loop {
        let page = api.list(&params).await.expect("a page");
        pages += 1;
        names.extend(page.items.iter().map(ResourceExt::name_any));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    let expected: Vec<String> = (0..11).map(|n| format!("cm-{n:02}")).collect();
    assert_eq!((names, pages), (expected, 3));
    let metadata =
        api.list_metadata(&ListParams::default().labels("page=yes")).await.expect("a list");
    assert_eq!(metadata.items.len(), 11);
    api.delete_collection(&DeleteParams::default(), &ListParams::default().labels("page=yes"))
        .await
        .expect("they are deleted");
    assert!(
        api.list(&ListParams::default().labels("page=yes")).await.expect("a list").items.is_empty()
    );
}

#[tokio::test]
async fn a_watch_is_resumed_where_it_ended() {
    let (_server, client, namespace) = setup("kube-watch").await;
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let start = api
        .list(&ListParams::default())
        .await
        .expect("a list")
        .metadata
        .resource_version
        .expect("lists have one");
    let only = WatchParams::default().fields("metadata.name=cm");

    let mut events = api.watch(&only, &start).await.expect("a watch").boxed();
    api.create(&PostParams::default(), &config_map("cm", "one")).await.expect("it is created");
    let WatchEvent::Added(added) = next(&mut events).await else { panic!("it was added") };
    drop(events);

    // Events during the interruption are delivered afterwards, and none twice.
    let patch = Patch::Merge(json!({"data": {"key": "two"}}));
    let patched = api.patch("cm", &PatchParams::default(), &patch).await.expect("it is patched");
    let from = added.resource_version().expect("objects have one");
    let mut events = api.watch(&only, &from).await.expect("a watch").boxed();
    let WatchEvent::Modified(modified) = next(&mut events).await else { panic!("it was modified") };
    assert_eq!(modified.resource_version(), patched.resource_version());
    api.delete("cm", &DeleteParams::default()).await.expect("it is deleted");
    let WatchEvent::Deleted(deleted) = next(&mut events).await else { panic!("it was deleted") };
    assert_eq!(deleted.uid(), added.uid());
}

#[tokio::test]
async fn watchers_see_the_state_and_every_change() {
    let (_server, client, namespace) = setup("kube-watcher").await;
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let labelled = |name: &str| {
        let mut object = config_map(name, "x");
        object.labels_mut().insert("seen".to_owned(), "yes".to_owned());
        object
    };
    api.create(&PostParams::default(), &labelled("before")).await.expect("it is created");
    let ways =
        [watcher::Config::default().page_size(1), watcher::Config::default().streaming_lists()];
    for (way, config) in ways.into_iter().enumerate() {
        let mut events = watcher(api.clone(), config.labels("seen=yes")).boxed();
        let mut initial = Vec::new();
        loop {
            match next(&mut events).await {
                watcher::Event::Init => {}
                watcher::Event::InitApply(object) => initial.push(object.name_any()),
                watcher::Event::InitDone => break,
                other => panic!("not yet: {other:?}"),
            }
        }
        assert_eq!(initial, ["before"]);
        let name = format!("after-{way}");
        api.create(&PostParams::default(), &labelled(&name)).await.expect("it is created");
        assert!(
            matches!(next(&mut events).await, watcher::Event::Apply(object) if object.name_any() == name)
        );
        api.delete(&name, &DeleteParams::default()).await.expect("it is deleted");
        assert!(
            matches!(next(&mut events).await, watcher::Event::Delete(object) if object.name_any() == name)
        );
    }
}

#[tokio::test]
async fn a_watcher_outlives_the_end_of_its_watches() {
    let (_server, client, namespace) = setup("kube-rewatch").await;
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    // Each watch lasts a second, so the later objects are seen by a second or third one.
    let config = watcher::Config::default().fields("metadata.name!=kube-root-ca.crt").timeout(1);
    let mut objects = watcher(api.clone(), config).applied_objects().boxed();
    for n in 0..3 {
        let name = format!("cm-{n}");
        api.create(&PostParams::default(), &config_map(&name, "x")).await.expect("it is created");
        assert_eq!(next(&mut objects).await.name_any(), name);
        // Until the watch of this round has run out of time.
        tokio::time::timeout(Duration::from_millis(1200), objects.try_next())
            .await
            .expect_err("nothing happens");
    }
}

/// A controller as kube-rs makes them: it owns Secrets of ConfigMaps, and keeps a finalizer on each of these.
#[tokio::test]
async fn a_controller_reconciles_and_finalizes() {
    let (_server, client, namespace) = setup("kube-controller").await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let (cleaned, mut cleanups) = tokio::sync::mpsc::channel(16);
    let reconcile = {
        let (maps, secrets) = (maps.clone(), secrets.clone());
        move |map: Arc<ConfigMap>, _: Arc<()>| {
            let (maps, secrets, cleaned) = (maps.clone(), secrets.clone(), cleaned.clone());
            async move {
                finalizer(&maps, "example.com/cleanup", map, |event| async {
                    match event {
                        finalizer::Event::Apply(map) => {
                            let secret = json!({
                                "apiVersion": "v1", "kind": "Secret",
                                "metadata": {
                                    "name": map.name_any(),
                                    "ownerReferences": [map.controller_owner_ref(&())],
                                },
                                "stringData": map.data,
                            });
                            let params = PatchParams::apply("controller").force();
                            secrets.patch(&map.name_any(), &params, &Patch::Apply(&secret)).await?;
                        }
                        finalizer::Event::Cleanup(map) => {
                            cleaned.send(map.name_any()).await.expect("the test waits for it");
                        }
                    }
                    Ok::<_, kube::Error>(Action::await_change())
                })
                .await
            }
        }
    };
    let mine = watcher::Config::default().labels("controlled=yes");
    let controller = Controller::new(maps.clone(), mine)
        .owns(secrets.clone(), watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(1)), Arc::new(()))
        .for_each(|_| std::future::ready(()));
    let controller = tokio::spawn(controller);

    let mut map = config_map("owner", "one");
    map.labels_mut().insert("controlled".to_owned(), "yes".to_owned());
    maps.create(&PostParams::default(), &map).await.expect("it is created");
    let holds = |value: &'static str| {
        move |secret: Option<&Secret>| {
            let data = secret.and_then(|secret| secret.data.as_ref());
            data.and_then(|data| data.get("key")).is_some_and(|found| found.0 == value.as_bytes())
        }
    };
    let wait = async |value| {
        let found = await_condition(secrets.clone(), "owner", holds(value));
        let found = tokio::time::timeout(PATIENCE, found).await.expect("in time");
        found.expect("it is followed").expect("it is there")
    };
    wait("one").await;
    // A change of the owner, and one of what it owns, are put right.
    let patch = json!({"data": {"key": "two"}});
    maps.patch("owner", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("changed");
    wait("two").await;
    let patch = json!({"stringData": {"key": "three"}});
    secrets.patch("owner", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("changed");
    let secret = wait("two").await;
    maps.delete("owner", &DeleteParams::default()).await.expect("it is deleted");
    let cleanup = tokio::time::timeout(PATIENCE, cleanups.recv()).await.expect("in time");
    assert_eq!(cleanup.as_deref(), Some("owner"));
    let uid = secret.uid().expect("it is stored");
    let gone = await_condition(secrets.clone(), "owner", conditions::is_deleted(&uid));
    tokio::time::timeout(PATIENCE, gone).await.expect("in time").expect("it is collected");
    controller.abort();
}

#[tokio::test]
async fn server_side_apply_creates_and_takes_over() {
    let (_server, client, namespace) = setup("kube-apply").await;
    let api: Api<Deployment> = Api::namespaced(client, &namespace);
    let apply = |replicas: u32| {
        Patch::Apply(json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": "x"}},
                "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}},
            },
        }))
    };
    let first =
        api.patch("d", &PatchParams::apply("first"), &apply(1)).await.expect("it is created");
    assert_eq!(first.managed_fields()[0].manager.as_deref(), Some("first"));
    let same =
        api.patch("d", &PatchParams::apply("first"), &apply(1)).await.expect("nothing happens");
    assert_eq!(same.resource_version(), first.resource_version());
    assert_eq!(
        code(api.patch("d", &PatchParams::apply("second"), &apply(2)).await),
        (409, "Conflict".to_owned())
    );
    let taken =
        api.patch("d", &PatchParams::apply("second").force(), &apply(2)).await.expect("by force");
    assert_eq!(taken.spec.and_then(|spec| spec.replicas), Some(2));

    let scale = api
        .patch_scale("d", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 5}})))
        .await
        .expect("it is scaled");
    assert_eq!(scale.spec.and_then(|spec| spec.replicas), Some(5));
    let status = Patch::Merge(json!({"status": {"replicas": 4}}));
    let reported =
        api.patch_status("d", &PatchParams::default(), &status).await.expect("it has a status");
    assert_eq!(reported.status.and_then(|status| status.replicas), Some(4));
}

#[tokio::test]
async fn kinds_are_discovered_and_used_without_types() {
    let (_server, client, namespace) = setup("kube-dynamic").await;
    let discovery = Discovery::new(client.clone()).run().await.expect("discovery works");
    let kind = GroupVersionKind::gvk("apps", "v1", "Deployment");
    let (resource, capabilities) = discovery.resolve_gvk(&kind).expect("the kind is there");
    assert_eq!(resource.plural, "deployments");
    assert!(capabilities.supports_operation("watch"));
    assert!(
        capabilities
            .subresources
            .iter()
            .any(|(subresource, _)| subresource.plural == "deployments/scale"
                || subresource.plural == "scale")
    );

    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
    let api: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &resource);
    let object = DynamicObject::new("cm", &resource).data(json!({"data": {"a": "b"}}));
    let created = api.create(&PostParams::default(), &object).await.expect("it is created");
    assert_eq!(created.data["data"]["a"], "b");
}

#[tokio::test]
async fn every_kind_of_patch_applies() {
    let (_server, client, namespace) = setup("kube-patches").await;
    let api: Api<Pod> = Api::namespaced(client, &namespace);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]},
    });
    let params = PatchParams::apply("patcher");
    api.patch("p", &params, &Patch::Apply(&pod)).await.expect("it is applied");
    let images = |pod: &Pod| -> Vec<String> {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        containers.map(|container| container.image.clone().unwrap_or_default()).collect()
    };

    // By merge key; a merge patch would replace the list.
    let patch = json!({"spec": {"containers": [{"name": "b", "image": "z"}]}});
    let patched = api.patch("p", &PatchParams::default(), &Patch::Strategic(patch.clone())).await;
    assert_eq!(images(&patched.expect("it is merged")), ["x", "z"]);
    let replaced = api.patch("p", &PatchParams::default(), &Patch::Merge(patch)).await;
    assert_eq!(code(replaced), (422, "Invalid".to_owned()), "a pod keeps its containers");

    // Its type is that of a crate that kube-rs has inside.
    let patch = serde_json::from_value(json!([
        {"op": "test", "path": "/spec/containers/0/name", "value": "a"},
        {"op": "replace", "path": "/spec/containers/0/image", "value": "w"},
        {"op": "add", "path": "/metadata/labels", "value": {"n": "1"}},
    ]))
    .expect("a JSON patch");
    let patched = api.patch("p", &PatchParams::default(), &Patch::Json::<()>(patch)).await;
    let patched = patched.expect("it is patched");
    assert_eq!((images(&patched), &*patched.labels()["n"]), (vec!["w".into(), "z".into()], "1"));
    let patch = serde_json::from_value(
        json!([{"op": "test", "path": "/spec/containers/0/name", "value": "other"}]),
    )
    .expect("a JSON patch");
    let failed = api.patch("p", &PatchParams::default(), &Patch::Json::<()>(patch)).await;
    assert_eq!(code(failed), (422, "Invalid".to_owned()));

    let patch = Patch::Merge(json!({"metadata": {"labels": {"n": null, "m": "2"}}}));
    let patched =
        api.patch("p", &PatchParams::default().dry_run(), &patch).await.expect("a dry run");
    assert_eq!(patched.labels().get("n"), None);
    let patched = api.patch("p", &PatchParams::default(), &patch).await.expect("it is merged");
    assert_eq!(patched.labels().iter().collect::<Vec<_>>(), [(&"m".to_owned(), &"2".to_owned())]);
    let unmanaged = api.patch("p", &PatchParams::default(), &Patch::Apply(&pod)).await;
    assert!(unmanaged.is_err(), "an apply needs a manager");
}
