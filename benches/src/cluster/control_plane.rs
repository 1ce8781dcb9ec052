//! What is no node: informers of controllers and the scheduler, pods that come and go, changes that all nodes
//! get, people, and a GitOps client.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use http::Method;
use serde_json::json;
use tokio::task::spawn_local;

use super::Cluster;
use super::node::{LIST_FORMAT, STRATEGIC, follow};
use super::objects::{
    Objects, SERVICES_PER_NAMESPACE, create, namespace_of, namespaces, node_name, pod, pod_status,
    slice_name,
};
use super::stats::Work;
use crate::bodies;
use crate::client::{Call, Client, Failure, JSON, Keep};

/// Makes what every stage needs.
pub(super) async fn prepare(cluster: &Rc<Cluster>, objects: &mut Objects) -> Result<()> {
    let name = json!({"metadata": {"name": GITOPS_NAMESPACE}}).to_string();
    let made = async |path: &str, body: String| {
        create(cluster, path.to_owned(), body).await.map_err(|failure| anyhow!("{failure}"))
    };
    made("/api/v1/namespaces", name).await?;
    made("/api/v1/namespaces", json!({"metadata": {"name": "kube-node-lease"}}).to_string())
        .await?;
    objects.grow(cluster, 0).await
}

pub(super) fn start(cluster: &Rc<Cluster>) {
    for (owner, kinds) in
        [("controller manager", &CONTROLLER_MANAGER[..]), ("scheduler", &SCHEDULER[..])]
    {
        cluster.stats.starts();
        spawn_local(inform(cluster.clone(), owner, kinds));
    }
    spawn_local(churn(cluster.clone()));
    spawn_local(update_slices(cluster.clone()));
    spawn_local(people(cluster.clone()));
    spawn_local(gitops(cluster.clone()));
}

const CONTROLLER_MANAGER: [&str; 14] = [
    "/api/v1/pods",
    "/api/v1/nodes",
    "/api/v1/services",
    "/api/v1/configmaps",
    "/api/v1/secrets",
    "/api/v1/namespaces",
    "/api/v1/serviceaccounts",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/daemonsets",
    "/apis/apps/v1/statefulsets",
    "/apis/batch/v1/jobs",
    "/apis/coordination.k8s.io/v1/leases",
    "/apis/discovery.k8s.io/v1/endpointslices",
];

const SCHEDULER: [&str; 7] = [
    "/api/v1/pods",
    "/api/v1/nodes",
    "/api/v1/namespaces",
    "/api/v1/persistentvolumes",
    "/api/v1/persistentvolumeclaims",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/apps/v1/replicasets",
];

/// Lists and then watches everything, as a process that starts.
async fn inform(cluster: Rc<Cluster>, owner: &'static str, kinds: &'static [&'static str]) {
    let Ok(client) = Client::connect(&cluster.target, 1).await else {
        eprintln!("the {owner} cannot connect");
        cluster.stats.started();
        return;
    };
    let client = Rc::new(client);
    for kind in kinds {
        let call = Call::get(format!("{kind}?resourceVersion=0")).accept(LIST_FORMAT);
        // Counted in the statistics.
        let _ =
            cluster.stats.timed(Work::List("by informers"), &client, &call, Keep::Nothing).await;
        cluster.stats.starts();
        spawn_local(follow(cluster.clone(), client.clone(), format!("{kind}?")));
    }
    cluster.stats.started();
}

/// Pods at a rate: each is created, bound, reported on four times, and deleted after a while.
async fn churn(cluster: Rc<Cluster>) {
    let mut ticks = every(cluster.load.churn);
    let mut alive = VecDeque::new();
    for number in 0_usize.. {
        ticks.tick().await;
        let node = number * 7919 % cluster.stats.nodes().max(1);
        let name = format!("churn-{}-{number}", std::process::id());
        let path = format!("/api/v1/namespaces/{}/pods", namespace_of(node));
        alive.push_back(format!("{path}/{name}"));
        spawn_local(live(cluster.clone(), path, name, number, node));
        let kept = (cluster.load.churn * LIFETIME.as_secs_f64()) as usize;
        if alive.len() > kept.max(1)
            && let Some(path) = alive.pop_front()
        {
            let cluster = cluster.clone();
            spawn_local(async move {
                let body = r#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}"#;
                let call = Call::send(Method::DELETE, path, JSON, body);
                let _ = timed(&cluster, "delete pods", &call).await;
            });
        }
    }
}

/// The life of a pod until it runs. A step that fails ends it; the statistics have the failure.
async fn live(cluster: Rc<Cluster>, path: String, name: String, number: usize, node: usize) {
    let steps = async {
        let body = pod(&name, number, None);
        timed(&cluster, "create pods", &Call::send(Method::POST, path.clone(), JSON, body)).await?;
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node_name(node)},
        });
        let bind = format!("{path}/{name}/binding");
        let bind = Call::send(Method::POST, bind, JSON, binding.to_string());
        timed(&cluster, "create pods/binding", &bind).await?;
        for step in 0..4 {
            let body = pod_status(step, &cluster.stats.moment());
            let status = format!("{path}/{name}/status");
            let call = Call::send(Method::PATCH, status, STRATEGIC, body);
            timed(&cluster, "patch pods/status", &call).await?;
            tokio::time::sleep(STEP).await;
        }
        Ok::<_, Failure>(())
    };
    let _ = steps.await;
}

/// Changes of endpoint slices, which all nodes get.
async fn update_slices(cluster: Rc<Cluster>) {
    let mut ticks = every(cluster.load.slice_updates);
    for number in 0_usize.. {
        ticks.tick().await;
        let namespaces = namespaces(cluster.stats.nodes());
        let namespace = format!("cluster-{:03}", number % namespaces);
        let name = slice_name(number % SERVICES_PER_NAMESPACE);
        let path =
            format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices/{name}");
        let body = json!({"metadata": {"annotations": {"bench-sent": cluster.stats.moment()}}});
        let call =
            Call::send(Method::PATCH, path, "application/merge-patch+json", body.to_string());
        let _ = timed(&cluster, "patch endpointslices", &call).await;
    }
}

/// `kubectl get pods` of a namespace and `kubectl get nodes`, by turns.
async fn people(cluster: Rc<Cluster>) {
    let mut ticks = every(PEOPLE_PER_S);
    for number in 0_usize.. {
        ticks.tick().await;
        let namespaces = namespaces(cluster.stats.nodes());
        let (what, path) = if number % 10 == 9 {
            ("nodes as Table", "/api/v1/nodes?limit=500".to_owned())
        } else {
            let namespace = format!("cluster-{:03}", number % namespaces);
            ("pods as Table", format!("/api/v1/namespaces/{namespace}/pods?limit=500"))
        };
        let call = Call::get(path).accept(TABLE);
        let _ = cluster.stats.timed(Work::List(what), &cluster.client, &call, Keep::Nothing).await;
    }
}

/// Applies [`GITOPS_OBJECTS`] Deployments again and again, one in ten of them changed.
async fn gitops(cluster: Rc<Cluster>) {
    let mut ticks = every(GITOPS_OBJECTS as f64 / GITOPS_EVERY.as_secs_f64());
    let template = bodies::deployment_template();
    for number in 0_usize.. {
        ticks.tick().await;
        let (object, round) = (number % GITOPS_OBJECTS, number / GITOPS_OBJECTS);
        let revision = if object % 10 == round % 10 { round } else { 0 };
        let name = bodies::deployment_name(object);
        let path = format!(
            "/apis/apps/v1/namespaces/{GITOPS_NAMESPACE}/deployments/{name}?fieldManager=gitops&force=true"
        );
        let body = template.deployment(object, revision);
        let call = Call::send(Method::PATCH, path, "application/apply-patch+yaml", body);
        let _ = timed(&cluster, "apply deployments", &call).await;
    }
}

async fn timed(cluster: &Cluster, what: &'static str, call: &Call) -> Result<(), Failure> {
    let work = Work::Single(what);
    cluster.stats.timed(work, &cluster.client, call, Keep::Nothing).await.map(drop)
}

/// So many times a second; what the server is late for is made up for.
fn every(per_s: f64) -> tokio::time::Interval {
    tokio::time::interval(Duration::from_secs_f64(1.0 / per_s.max(1e-3)))
}

const GITOPS_NAMESPACE: &str = "cluster-gitops";
const GITOPS_OBJECTS: usize = 2000;
const GITOPS_EVERY: Duration = Duration::from_mins(3);
const PEOPLE_PER_S: f64 = 2.0;
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// How long a pod of the churn lives.
const LIFETIME: Duration = Duration::from_secs(20);
/// Between two reports on a pod.
const STEP: Duration = Duration::from_millis(500);
