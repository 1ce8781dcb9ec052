//! The server as tests use it.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, CustomResource, Resource as _, ResourceExt as _};
use pintle_testing::{Error, Server};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Widget", namespaced, status = "WidgetStatus")]
struct WidgetSpec {
    size: u32,
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
struct WidgetStatus {
    ready: bool,
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    let data = BTreeMap::from([("key".to_owned(), value.to_owned())]);
    let mut map = ConfigMap { data: Some(data), ..ConfigMap::default() };
    map.metadata.name = Some(name.to_owned());
    map
}

/// What a client does, over whatever connection.
async fn use_client(client: Client) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let created =
        maps.create(&PostParams::default(), &config_map("a", "1")).await.expect("created");
    let from = created.resource_version().expect("stored");
    // Controllers add a ConfigMap to every namespace.
    let params = WatchParams::default().fields("metadata.name=a");
    let events = maps.watch(&params, &from).await.expect("watched");
    let patch = json!({"data": {"key": "2"}});
    let patched = maps.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await;
    assert_eq!(patched.expect("patched").data.expect("has data")["key"], "2");
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"mine": "3"}});
    let params = PatchParams::apply("tests");
    maps.patch("a", &params, &Patch::Apply(&applied)).await.expect("applied");
    let refused = maps.create(&PostParams::default(), &config_map("A", "1")).await;
    assert!(refused.expect_err("is invalid").to_string().contains("RFC 1123"));
    maps.delete("a", &DeleteParams::default()).await.expect("deleted");
    let seen: Vec<&str> = events
        .map_ok(|event| match event {
            WatchEvent::Added(_) => "added",
            WatchEvent::Modified(_) => "modified",
            WatchEvent::Deleted(_) => "deleted",
            WatchEvent::Bookmark(_) => "bookmark",
            WatchEvent::Error(_) => "error",
        })
        .try_filter(|event| std::future::ready(*event != "bookmark"))
        .take(3)
        .try_collect()
        .await
        .expect("followed");
    assert_eq!(seen, ["modified", "modified", "deleted"]);
    let left = maps.list(&ListParams::default()).await.expect("listed");
    assert!(left.items.iter().all(|map| map.name_any() == "kube-root-ca.crt"));
}

#[tokio::test]
async fn clients_work_in_memory_and_over_tls() {
    let server = Server::start().await.expect("starts");
    use_client(server.client()).await;
    assert!(matches!(server.config().await, Err(Error::NoPort)));

    let server = Server::builder().tls().start().await.expect("starts");
    let config = server.config().await.expect("a port is open");
    use_client(Client::try_from(config).expect("a usable configuration")).await;
    use_client(server.client()).await;
    assert!(server.kubeconfig().expect("a port is open").contains("https://127.0.0.1:"));
}

#[tokio::test]
async fn definitions_are_installed_from_types_and_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("crd.yaml");
    let other = include_str!("gadgets.yaml");
    std::fs::write(&file, other).expect("writable");
    let server = Server::builder().crd::<Widget>().crd_files(directory.path()).start().await;
    let server = server.expect("starts");

    let widgets: Api<Widget> = Api::default_namespaced(server.client());
    let widget = Widget::new("a", WidgetSpec { size: 3 });
    let widget = widgets.create(&PostParams::default(), &widget).await.expect("created");
    assert_eq!(widget.spec.size, 3);
    let status = json!({"status": {"ready": true}});
    let changed = widgets.patch_status("a", &PatchParams::default(), &Patch::Merge(&status)).await;
    assert!(changed.expect("changed").status.expect("has a status").ready);
    let crds = server.client().list_api_group_resources("gadgets.example.com/v1").await;
    assert_eq!(crds.expect("is served").resources[0].kind, "Gadget");
    // Again is fine.
    server.install::<Widget>().await.expect("replaced");
    server.install_files(&file).await.expect("replaced");
    let error = server.install_files("no/such/file.yaml").await.expect_err("is missing");
    assert!(error.to_string().contains("no/such/file.yaml"), "{error}");
}

#[tokio::test]
async fn owned_objects_and_namespaces_go_away() {
    let server = Server::start().await.expect("starts");
    let client = server.client();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some("mine".to_owned());
    namespaces.create(&PostParams::default(), &namespace).await.expect("created");
    let maps: Api<ConfigMap> = Api::namespaced(client, "mine");
    let owner = maps.create(&PostParams::default(), &config_map("owner", "")).await;
    let owner = owner.expect("created");
    let mut owned = config_map("owned", "");
    let reference = OwnerReference { controller: None, ..owner.owner_ref(&()).expect("stored") };
    owned.metadata.owner_references = Some(vec![reference]);
    let owned = maps.create(&PostParams::default(), &owned).await.expect("created");

    maps.delete("owner", &DeleteParams::default()).await.expect("deleted");
    let uid = owned.uid().expect("stored");
    let gone = await_condition(maps, "owned", conditions::is_deleted(&uid));
    tokio::time::timeout(PATIENCE, gone).await.expect("in time").expect("collected");
    let namespace = namespaces.delete("mine", &DeleteParams::default()).await.expect("deleted");
    let uid = namespace.left().and_then(|namespace| namespace.uid()).unwrap_or_default();
    let gone = await_condition(namespaces, "mine", conditions::is_deleted(&uid));
    tokio::time::timeout(PATIENCE, gone).await.expect("in time").expect("emptied");
}

const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn servers_are_alone() {
    let (one, other) = (Server::start().await, Server::start().await);
    let (one, other) = (one.expect("starts"), other.expect("starts"));
    let maps = |server: &Server| Api::<ConfigMap>::default_namespaced(server.client());
    maps(&one).create(&PostParams::default(), &config_map("a", "1")).await.expect("created");
    assert!(maps(&other).get_opt("a").await.expect("answered").is_none());
    maps(&other).create(&PostParams::default(), &config_map("a", "2")).await.expect("created");
    assert_eq!(maps(&one).get("a").await.expect("there").data.expect("has data")["key"], "1");
}

/// Each test has a runtime of its own, and all may share a server.
#[test]
fn a_server_outlives_the_runtime_that_started_it() {
    let runtime = || tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime().block_on(Server::start()).expect("starts");
    for _ in 0..2 {
        runtime().block_on(async { use_client(server.client()).await });
    }
}

#[tokio::test]
async fn a_wrong_flag_is_an_error() {
    let started = Server::builder().flag("--no-such-flag").start().await;
    let error = started.err().expect("is refused").to_string();
    assert!(error.contains("unknown flag: --no-such-flag"), "{error}");
    let started = Server::builder().flag("--feature-gates=Nonsense=true").start().await;
    assert!(matches!(started, Err(Error::Start(why)) if why.contains("Nonsense")));
}
