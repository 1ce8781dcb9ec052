//! Echoes through exec and port-forward, directly to a kubelet and through the server.

use http::Method;
use serde_json::json;
use tokio::sync::Mutex;

use super::{Outcome, World, drive};
use crate::client::{Call, Failure, Keep, Target};
use crate::echo::{Connection, Echo, Way};
use crate::kubeconfig::Credentials;
use crate::kubelet;
use crate::load::Plan;
use crate::tls_server::TlsServer;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeEcho {
    pub(super) way: Way,
    /// Without the server in between: what the other rows are to be compared with.
    pub(super) direct: bool,
}

const NAMESPACE: &str = "bench-nodes";
const NODE: &str = "bench-node";
const MERGE_PATCH: &str = "application/merge-patch+json";
/// A line that a person types.
const LINE: &[u8; 64] = &[b'x'; 64];

pub(super) async fn measure(world: &World, plan: Plan, what: NodeEcho) -> Outcome {
    let kubelet = match kubelet::start() {
        Ok(kubelet) => kubelet,
        Err(error) => return Outcome::NotAvailable(format!("no kubelet: {error:#}")),
    };
    let opened = match prepare(world, &kubelet).await {
        Ok(()) => open(world, what, &kubelet).await,
        Err(failure) => return failure.into(),
    };
    let echo = match opened {
        Ok(echo) => Mutex::new(echo),
        Err(error) => return Failure::local(&error).into(),
    };
    // One connection: an echo is sent when the one before it is back.
    drive(world, plan, None, 500, async |_, _, _| {
        echo.lock().await.echo(LINE).await.map_err(|error| Failure::local(&error))?;
        Ok(LINE.len() as u64)
    })
    .await
}

async fn open(
    world: &World,
    what: NodeEcho,
    kubelet: &TlsServer,
) -> anyhow::Result<Echo<Connection>> {
    let exec = "command=cat&container=c&stdin=true&stdout=true";
    let is_exec = matches!(what.way, Way::ExecWebSocket | Way::ExecSpdy);
    if what.direct {
        // Without a CA its certificate is not verified.
        let direct = Target::new(&format!("https://{}", kubelet.address), &Credentials::default())?;
        let path = if is_exec {
            format!("/exec/{NAMESPACE}/web/c?input=1&output=1&command=cat")
        } else {
            format!("/portForward/{NAMESPACE}/web")
        };
        return Echo::open(&direct, &path, what.way).await;
    }
    let pod = format!("/api/v1/namespaces/{NAMESPACE}/pods/web");
    let path =
        if is_exec { format!("{pod}/exec?{exec}") } else { format!("{pod}/portforward?ports=80") };
    Echo::open(&world.target, &path, what.way).await
}

/// Makes a node with the kubelet's address, and a pod on it.
async fn prepare(world: &World, kubelet: &TlsServer) -> Result<(), Failure> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    world.create_unless_there("/api/v1/namespaces", body.to_string()).await?;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}});
    world.create_unless_there("/api/v1/nodes", node.to_string()).await?;
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": kubelet.address.ip().to_string()}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.address.port()}},
    }});
    patch(world, &format!("/api/v1/nodes/{NODE}/status"), &status).await?;
    // There may be no controller that makes the default account.
    let accounts = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    world.create_unless_there(&accounts, account.to_string()).await?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {
            "nodeName": NODE, "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "i"}],
        },
    });
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    world.create_unless_there(&pods, pod.to_string()).await?;
    let status = json!({"status": {"phase": "Running"}});
    patch(world, &format!("{pods}/web/status"), &status).await
}

async fn patch(world: &World, path: &str, patch: &serde_json::Value) -> Result<(), Failure> {
    let call = Call::send(Method::PATCH, path, MERGE_PATCH, patch.to_string());
    world.client.ok(&call, Keep::Nothing).await.map(drop)
}
