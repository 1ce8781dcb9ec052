//! The controller on a real API server, inside the test: `cargo test` is all there is.

use std::time::Duration;

use example_controller::{Context, Website, WebsiteSpec, run};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, ResourceExt as _};
use pintle_testing::Server;
use serde_json::json;
use tokio::sync::mpsc;

struct Cluster {
    server: Server,
    released: mpsc::Receiver<String>,
    controller: tokio::task::JoinHandle<()>,
}

/// A server with the definition, and the controller.
async fn cluster() -> Cluster {
    let server = Server::builder().crd::<Website>().start().await.expect("starts");
    let (sender, released) = mpsc::channel(16);
    let controller = tokio::spawn(run(Context { client: server.client(), released: sender }));
    Cluster { server, released, controller }
}

impl Cluster {
    fn websites(&self) -> Api<Website> {
        Api::default_namespaced(self.server.client())
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::default_namespaced(self.server.client())
    }

    async fn create(&self, name: &str) -> Website {
        let website = Website::new(name, WebsiteSpec { image: "nginx".to_owned(), replicas: 2 });
        self.websites().create(&PostParams::default(), &website).await.expect("created")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.controller.abort();
    }
}

const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for an object to be as it should.
async fn until<K>(api: Api<K>, name: &str, holds: impl Fn(&K) -> bool) -> K
where
    K: Clone + std::fmt::Debug + Send + for<'a> serde::Deserialize<'a> + kube::Resource + 'static,
    K::DynamicType: Default,
{
    let condition = |object: Option<&K>| object.is_some_and(&holds);
    let found = tokio::time::timeout(PATIENCE, await_condition(api, name, condition)).await;
    found.expect("in time").expect("followed").expect("is there")
}

#[tokio::test]
async fn a_website_has_a_deployment() {
    let cluster = cluster().await;
    cluster.create("shop").await;
    let deployment = until(cluster.deployments(), "shop", |_| true).await;
    let spec = deployment.spec.expect("has a spec");
    assert_eq!(spec.replicas, Some(2));
    // The server has defaulted it as a cluster's does.
    assert_eq!(spec.revision_history_limit, Some(10));

    let patch = json!({"spec": {"replicas": 5}});
    let params = PatchParams::default();
    cluster.websites().patch("shop", &params, &Patch::Merge(&patch)).await.expect("changed");
    let scaled = |deployment: &Deployment| {
        deployment.spec.as_ref().and_then(|spec| spec.replicas) == Some(5)
    };
    until(cluster.deployments(), "shop", scaled).await;
}

#[tokio::test]
async fn the_status_follows_the_deployment() {
    let cluster = cluster().await;
    cluster.create("shop").await;
    until(cluster.deployments(), "shop", |_| true).await;
    // There are no nodes; the test says what a cluster would.
    let status = json!({"status": {"replicas": 2, "readyReplicas": 2, "availableReplicas": 2}});
    let params = PatchParams::default();
    let patch = Patch::Merge(&status);
    cluster.deployments().patch_status("shop", &params, &patch).await.expect("changed");
    let ready = |website: &Website| {
        website.status.as_ref().is_some_and(|status| status.ready_replicas == 2)
    };
    until(cluster.websites(), "shop", ready).await;
}

#[tokio::test]
async fn a_deleted_website_gives_everything_back() {
    let mut cluster = cluster().await;
    cluster.create("shop").await;
    let deployment = until(cluster.deployments(), "shop", |_| true).await;
    cluster.websites().delete("shop", &DeleteParams::default()).await.expect("deleted");
    let released = tokio::time::timeout(PATIENCE, cluster.released.recv()).await;
    assert_eq!(released.expect("in time").as_deref(), Some("shop"));
    // Garbage collection is the server's.
    let uid = deployment.uid().expect("stored");
    let gone = await_condition(cluster.deployments(), "shop", conditions::is_deleted(&uid));
    tokio::time::timeout(PATIENCE, gone).await.expect("in time").expect("collected");
}

#[tokio::test]
async fn the_server_refuses_what_the_schema_forbids() {
    let cluster = cluster().await;
    let website = Website::new("shop", WebsiteSpec { image: String::new(), replicas: 11 });
    let refused = cluster.websites().create(&PostParams::default(), &website).await;
    let message = refused.expect_err("is invalid").to_string();
    assert!(message.contains("spec.replicas") && message.contains("spec.image"), "{message}");
}
