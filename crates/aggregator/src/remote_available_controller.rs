//! `apiservice-status-remote-available-controller`: is the server of an APIService there? Its Service, the
//! port, endpoints, and at last its discovery are looked at, in that order.

use std::{sync::Arc, time::Duration};

use client::ServiceLookup;
use controllers::{ApiClient, BoxFuture, Informer, Key, ObjectEvent, ReconcileResult, Reconciler};
use futures_util::future::select_ok;
use http::HeaderMap;
use meta::{ApiError, User, Value, field::quote};

use crate::{
    Registration,
    api_service::{ApiService, Availability, ServiceReference},
    availability_metrics::AvailabilityMetrics,
    backoff::Backoff,
    local_available_controller::write_condition,
    registration::api_services,
    remote_server::{Fetch, RemoteServer, shown_url},
};

pub struct RemoteAvailableController {
    api: Arc<dyn ApiClient>,
    registration: Arc<Registration>,
    lookup: Arc<dyn ServiceLookup>,
    metrics: AvailabilityMetrics,
    failures: Backoff,
}

impl RemoteAvailableController {
    pub fn new(
        api: Arc<dyn ApiClient>,
        registration: Arc<Registration>,
        lookup: Arc<dyn ServiceLookup>,
        metrics: AvailabilityMetrics,
    ) -> Self {
        let failures = Backoff::new(RETRY_MIN, RESYNC);
        Self { api, registration, lookup, metrics, failures }
    }

    /// Runs until the server stops. `events` are those of APIServices, Services and EndpointSlices.
    pub async fn run(self, events: impl Informer) {
        controllers::run_workqueue(self, events).await;
    }

    async fn availability(&self, server: &RemoteServer) -> Availability {
        match self.service_problem(&server.service).await {
            Some(problem) => problem,
            None => match check_discovery(server).await {
                Ok(()) => Availability::passed(),
                Err(message) => Availability::missing("FailedDiscoveryCheck", message),
            },
        }
    }

    /// What is wrong with the Service, as far as its objects tell.
    async fn service_problem(&self, reference: &ServiceReference) -> Option<Availability> {
        let ServiceReference { namespace, name, port } = reference;
        let service = format!("service/{name} in {}", quote(namespace));
        let unchecked = |reason, error: client::LookupError| {
            Some(Availability::unknown(
                reason,
                format!("{service} cannot be checked due to: {error}"),
            ))
        };
        let found = match self.lookup.service(namespace, name).await {
            Ok(Some(found)) => found,
            Ok(None) => {
                let message = format!("{service} is not present");
                return Some(Availability::missing("ServiceNotFound", message));
            }
            Err(error) => return unchecked("ServiceAccessError", error),
        };
        // Other types may not name the port, and may have no endpoints here.
        if !matches!(found.str_at(&["spec", "type"]), "" | "ClusterIP") {
            return None;
        }
        let mut ports = found.items_at(&["spec", "ports"]).iter();
        let Some(listed) = ports.find(|listed| listed.i64_at(&["port"]) == Some(i64::from(*port)))
        else {
            let message = format!("{service} is not listening on port {port}");
            return Some(Availability::missing("ServicePortError", message));
        };
        let port_name = listed.str_at(&["name"]);
        let slices = match self.lookup.endpoint_slices(namespace, name).await {
            Ok(slices) => slices,
            Err(error) => return unchecked("EndpointsAccessError", error),
        };
        if slices.is_empty() {
            let message = format!("cannot find endpointslices for {service}");
            return Some(Availability::missing("EndpointsNotFound", message));
        }
        if !slices.iter().any(|slice| has_ready_endpoint(slice, port_name)) {
            let message = format!(
                "endpointslices for {service} have no addresses with port name {}",
                quote(port_name)
            );
            return Some(Availability::missing("MissingEndpoints", message));
        }
        None
    }
}

fn has_ready_endpoint(slice: &Value, port_name: &str) -> bool {
    // No condition means ready.
    let ready = |endpoint: &Value| {
        endpoint.at(&["conditions", "ready"]).and_then(Value::as_bool) != Some(false)
    };
    let named =
        |port: &Value| port.str_at(&["name"]) == port_name && port.i64_at(&["port"]).is_some();
    slice.items_at(&["endpoints"]).iter().any(ready) && slice.items_at(&["ports"]).iter().any(named)
}

/// One request, and if it fails several at once, of which one has to succeed: behind a Service, each may
/// reach another endpoint.
async fn check_discovery(server: &RemoteServer) -> Result<(), String> {
    if ask_for_discovery(server).await.is_ok() {
        return Ok(());
    }
    let attempts = (1..ATTEMPTS).map(|_| Box::pin(ask_for_discovery(server)));
    select_ok(attempts).await.map(|((), _others)| ())
}

const ATTEMPTS: usize = 5;

async fn ask_for_discovery(server: &RemoteServer) -> Result<(), String> {
    let path = server.api_service.discovery_path();
    let url = shown_url(&server.resolve().await?, &path);
    let failed = |why: String| format!("failing or missing response from {url}: {why}");
    let fetch = Fetch {
        path: &path,
        headers: HeaderMap::new(),
        user: &aggregator_user(),
        timeout: DISCOVERY_TIMEOUT,
        bytes_max: CHECKED_BYTES_MAX,
    };
    let response = server.fetch(fetch).await.map_err(&failed)?;
    let code = response.status();
    if !code.is_success() {
        return Err(failed(format!("bad status from {url}: {}", code.as_u16())));
    }
    Ok(())
}

const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);
/// The check reads up to five answers at the same time.
const CHECKED_BYTES_MAX: usize = 1 << 20;
/// The resources of one group-version; the largest of Kubernetes' own has 12 KB.
pub(crate) const DISCOVERY_BYTES_MAX: usize = 4 << 20;

/// Allowed everything by every server.
pub(crate) fn aggregator_user() -> User {
    User {
        name: "system:kube-aggregator".into(),
        groups: vec![User::MASTERS.into()],
        ..User::default()
    }
}

impl Reconciler for RemoteAvailableController {
    const QUEUE: &'static str = "RemoteAvailabilityController";

    fn keys_for(&self, event: &ObjectEvent) -> Vec<Key> {
        let key = |name: &str| ("".into(), name.into());
        let service = match event.resource.gvr.resource.as_str() {
            "apiservices" => return vec![key(&event.name)],
            "endpointslices" => {
                event.metadata.str_at(&["labels", "kubernetes.io/service-name"]).to_owned()
            }
            _ => event.name.to_string(),
        };
        let servers = self.registration.servers();
        let affected = servers.iter().filter(|server| {
            server.service.namespace == event.namespace.as_str() && server.service.name == service
        });
        affected.map(|server| key(&server.api_service.name)).collect()
    }

    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<ReconcileResult, ApiError>> {
        Box::pin(async move {
            let name = key.1.as_str();
            let object = match self.api.get(&api_services().named(name)).await {
                Err(error @ ApiError::NotFound { .. }) => {
                    self.failures.reset(name);
                    self.metrics.forget(name);
                    return Err(error);
                }
                other => other?,
            };
            let Some(server) = self.registration.server_for(ApiService::read(&object)) else {
                // The local controller's.
                return Ok(ReconcileResult::Done);
            };
            let availability = self.availability(&server).await;
            let failed = availability.reason == "FailedDiscoveryCheck";
            write_condition(&*self.api, object, &availability, &self.metrics).await?;
            // Networks change without an event, so everything is looked at again after a while.
            if failed {
                return Ok(ReconcileResult::RequeueAfter(self.failures.next(name)));
            }
            self.failures.reset(name);
            Ok(ReconcileResult::RequeueAfter(RESYNC))
        })
    }
}

/// Compat: how often kube-aggregator looks at an APIService.
const RESYNC: Duration = Duration::from_secs(30);
const RETRY_MIN: Duration = Duration::from_millis(100);
