//! Requests to an aggregated API server, directly and through the server, and requests of others while half of
//! a hundred APIServices are down.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::{Outcome, World, drive};
use crate::client::{Call, Client, Failure, Keep, Target};
use crate::kubeconfig::Credentials;
use crate::load::Plan;
use crate::remote_server::{self, STREAM_BYTES};
use crate::tls_server::TlsServer;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Aggregated {
    /// A small object, without the server in between: what the next row is to be compared with.
    Direct,
    /// The same object through the server.
    Proxied,
    /// A gigabyte through the server.
    Stream,
    /// A local object, with no APIServices beside the server's own.
    OthersAlone,
    /// The same with a hundred APIServices, half of which have no server.
    OthersBeside,
}

const GROUP: &str = "bench-aggregated.example.com";
const NAMESPACE: &str = "bench-aggregated";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const MANY: usize = 100;

pub(super) async fn measure(world: &World, plan: Plan, what: Aggregated) -> Outcome {
    let server = match remote_server::start(&format!("backend.{NAMESPACE}.svc"), GROUP) {
        Ok(server) => server,
        Err(error) => return Failure::local(&error).into(),
    };
    let api_services = what.api_services(&server);
    let outcome = match prepare(world, what, &api_services).await {
        Ok(()) => run(world, plan, what, &server).await,
        Err(failure) => failure.into(),
    };
    for object in &api_services {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let call = Call::send(Method::DELETE, format!("{API_SERVICES}/{name}"), "", "");
        if let Err(failure) = world.client.ok(&call, Keep::Nothing).await {
            return failure.into();
        }
    }
    outcome
}

async fn run(world: &World, plan: Plan, what: Aggregated, server: &TlsServer) -> Outcome {
    let object = format!("/apis/{GROUP}/v1/namespaces/{NAMESPACE}/flunders/one");
    let get = async |client: &Client, path: &str| {
        Ok(client.ok(&Call::get(path), Keep::Nothing).await?.bytes)
    };
    match what {
        Aggregated::Direct => {
            let direct = match connect(server).await {
                Ok(direct) => direct,
                Err(error) => return Failure::local(&error).into(),
            };
            drive(world, plan, None, 500, async |_, _, _| get(&direct, &object).await).await
        }
        Aggregated::Proxied => {
            drive(world, plan, None, 500, async |client, _, _| get(client, &object).await).await
        }
        Aggregated::Stream => {
            let path = format!("/apis/{GROUP}/v1/namespaces/{NAMESPACE}/flunders/stream");
            drive(world, plan, None, 0, async |client, _, _| {
                let bytes = get(client, &path).await?;
                if bytes == STREAM_BYTES {
                    return Ok(bytes);
                }
                Err(Failure { code: None, message: format!("{bytes} bytes of {STREAM_BYTES}") })
            })
            .await
        }
        Aggregated::OthersAlone | Aggregated::OthersBeside => {
            let path = format!("/api/v1/namespaces/{NAMESPACE}");
            drive(world, plan, None, 500, async |client, _, _| get(client, &path).await).await
        }
    }
}

async fn connect(server: &TlsServer) -> anyhow::Result<Client> {
    // Without a CA its certificate is not verified.
    let target = Target::new(&format!("https://{}", server.address), &Credentials::default())?;
    Client::connect(&target, 1).await
}

/// Makes the Service and the APIServices, and waits until those that have a server are there.
async fn prepare(world: &World, what: Aggregated, api_services: &[Value]) -> Result<(), Failure> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    world.create_unless_there("/api/v1/namespaces", body.to_string()).await?;
    // Loopback is no address of a Service, but a name can lead there.
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "backend"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    let services = format!("/api/v1/namespaces/{NAMESPACE}/services");
    world.create_unless_there(&services, service.to_string()).await?;
    for object in api_services {
        world.create_unless_there(API_SERVICES, object.to_string()).await?;
    }
    if matches!(what, Aggregated::Proxied | Aggregated::Stream) {
        let call = Call::get(format!("/apis/{GROUP}/v1"));
        for _ in 0..ATTEMPTS {
            if world.client.ok(&call, Keep::Nothing).await.is_ok() {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        world.client.ok(&call, Keep::Nothing).await?;
    }
    // Until all of them were looked at once.
    tokio::time::sleep(SETTLE).await;
    Ok(())
}

const ATTEMPTS: usize = 100;
const PAUSE: Duration = Duration::from_millis(200);
const SETTLE: Duration = Duration::from_secs(3);

impl Aggregated {
    fn api_services(self, server: &TlsServer) -> Vec<Value> {
        let object = |group: String, service: &str| {
            json!({
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": format!("v1.{group}")},
                "spec": {
                    "group": group, "version": "v1",
                    "groupPriorityMinimum": 1000, "versionPriority": 15,
                    "service": {
                        "namespace": NAMESPACE, "name": service, "port": server.address.port(),
                    },
                    "caBundle": server.ca_bundle,
                },
            })
        };
        match self {
            Self::Direct | Self::OthersAlone => Vec::new(),
            Self::Proxied | Self::Stream => vec![object(GROUP.to_owned(), "backend")],
            // Half of them have a server that answers, half have no Service.
            Self::OthersBeside => (0..MANY)
                .map(|n| {
                    let service = if n % 2 == 0 { "backend" } else { "missing" };
                    object(format!("n{n}.{GROUP}"), service)
                })
                .collect(),
        }
    }
}
