//! A controller as one writes it with kube-rs: each `Website` gets a Deployment, its status says how many replicas
//! are ready, and a finalizer gives back what the cluster does not know about.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{self, Event, finalizer};
use kube::runtime::watcher;
use kube::{Api, Client, CustomResource, Resource as _, ResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::mpsc;

/// A web site and how often it runs.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Website",
    namespaced,
    status = "WebsiteStatus",
    shortname = "web",
    printcolumn = r#"{"name":"Ready", "type":"integer", "jsonPath":".status.readyReplicas"}"#
)]
pub struct WebsiteSpec {
    #[schemars(length(min = 1))]
    pub image: String,
    #[schemars(range(min = 0, max = 10))]
    pub replicas: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebsiteStatus {
    pub ready_replicas: i32,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error("finalizer: {0}")]
    Finalizer(#[from] Box<finalizer::Error<Error>>),
}

/// What reconciliation works with.
pub struct Context {
    pub client: Client,
    /// Names of sites whose certificates are to be given back.
    pub released: mpsc::Sender<String>,
}

const FINALIZER: &str = "example.com/certificates";
const RETRY: Duration = Duration::from_secs(1);

/// Runs until the future is dropped.
pub async fn run(context: Context) {
    let client = context.client.clone();
    let websites: Api<Website> = Api::all(client.clone());
    let deployments: Api<Deployment> = Api::all(client);
    Controller::new(websites, watcher::Config::default())
        .owns(deployments, watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(RETRY), Arc::new(context))
        .for_each(|_| std::future::ready(()))
        .await;
}

async fn reconcile(website: Arc<Website>, context: Arc<Context>) -> Result<Action, Error> {
    let namespace = website.namespace().unwrap_or_default();
    let websites: Api<Website> = Api::namespaced(context.client.clone(), &namespace);
    let done = finalizer(&websites, FINALIZER, website, |event| async {
        match event {
            Event::Apply(website) => apply(&website, &namespace, &context.client).await,
            Event::Cleanup(website) => {
                // A receiver that is gone needs no certificates.
                let _ = context.released.send(website.name_any()).await;
                Ok(Action::await_change())
            }
        }
    });
    done.await.map_err(|error| Error::Finalizer(Box::new(error)))
}

async fn apply(website: &Website, namespace: &str, client: &Client) -> Result<Action, Error> {
    let name = website.name_any();
    let params = PatchParams::apply("website-controller").force();
    let labels = json!({"website": name});
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "ownerReferences": [website.controller_owner_ref(&())]},
        "spec": {
            "replicas": website.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "web", "image": website.spec.image}]},
            },
        },
    });
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let deployment = deployments.patch(&name, &params, &Patch::Apply(&deployment)).await?;
    let ready = deployment.status.and_then(|status| status.ready_replicas).unwrap_or(0);
    let status = WebsiteStatus { ready_replicas: ready };
    if website.status.as_ref() != Some(&status) {
        let websites: Api<Website> = Api::namespaced(client.clone(), namespace);
        let patch = json!({"status": status});
        websites.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    }
    Ok(Action::await_change())
}
