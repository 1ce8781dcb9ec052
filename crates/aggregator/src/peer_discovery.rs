//! `peer-discovery-cache-sync`: what other API servers of the cluster serve, read again when one starts, stops
//! or is replaced, which their identity leases tell.

use std::{collections::HashSet, sync::Arc, time::Duration};

use bytes::Bytes;
use client::{Call, HostPort};
use codec::json::{self, DecodeOptions};
use controllers::{
    ApiClient, BoxFuture, Informer, Key, ObjectEvent, ReconcileResult, Reconciler, ResourceRef,
};
use http::{HeaderValue, Method, StatusCode, header::ACCEPT};
use meta::{ApiError, GroupVersionResource, User, Value};
use tokio::time::Instant;

use crate::{
    PeerProxy,
    backoff::Backoff,
    discovery_manager::is_aggregated,
    peer_proxy::{PEER_PROXIED, PeerApis, Peers},
    remote_available_controller::DISCOVERY_BYTES_MAX,
    user_headers::user_headers,
};

pub struct PeerDiscovery {
    api: Arc<dyn ApiClient>,
    proxy: Arc<PeerProxy>,
    failures: Backoff,
}

impl PeerDiscovery {
    pub fn new(api: Arc<dyn ApiClient>, proxy: Arc<PeerProxy>) -> Self {
        Self { api, proxy, failures: Backoff::new(RETRY_MIN, RETRY_MAX) }
    }

    /// Runs until the server stops. `events` are those of identity leases.
    pub async fn run(self, events: impl Informer) {
        let proxy = self.proxy.clone();
        tokio::select! {
            () = controllers::run_workqueue(self, events) => {}
            () = proxy.reap() => {}
        }
    }

    /// Reads the discovery of all peers. Err: that of some is missing.
    async fn sync(&self) -> Result<(), String> {
        let leases = self.api.list(&leases()).await.map_err(|error| {
            self.proxy.metrics.not_synced("lease_list");
            error.to_string()
        })?;
        let mut peers = Peers::new();
        let mut failed = Ok(());
        for lease in leases.iter().filter(|lease| is_peer(lease, &self.proxy.id)) {
            let id = lease.str_at(&["metadata", "name"]);
            match self.proxy.fetch(id).await {
                Ok(apis) => drop(peers.insert(id.to_owned(), Arc::new(apis))),
                Err(why) => failed = Err(format!("{id}: {why}")),
            }
        }
        self.proxy.replace(peers);
        failed
    }
}

/// Compat: the label of identity leases of API servers, and its value.
pub const IDENTITY_LABEL: (&str, &str) = ("apiserver.kubernetes.io/identity", "kube-apiserver");
const RETRY_MIN: Duration = Duration::from_millis(100);
/// The identity lease of a server that was killed stays for an hour.
const RETRY_MAX: Duration = Duration::from_secs(30);

fn leases() -> ResourceRef {
    ResourceRef::cluster("coordination.k8s.io", "v1", "leases").in_namespace("kube-system")
}

/// Whether a lease is the identity of another API server.
fn is_peer(lease: &Value, own: &str) -> bool {
    let (label, value) = IDENTITY_LABEL;
    lease.str_at(&["metadata", "labels", label]) == value
        && lease.str_at(&["metadata", "name"]) != own
        && lease.at(&["spec", "holderIdentity"]).is_some_and(|holder| !holder.is_null())
}

impl Reconciler for PeerDiscovery {
    const QUEUE: &'static str = "peer-discovery-cache-sync";

    /// All peers are read at once: leases that change together make one reconciliation.
    fn keys_for(&self, _: &ObjectEvent) -> Vec<Key> {
        vec![("".into(), KEY.into())]
    }

    fn reconcile<'a>(&'a self, _: &'a Key) -> BoxFuture<'a, Result<ReconcileResult, ApiError>> {
        Box::pin(async move {
            let Err(error) = self.sync().await else {
                self.failures.reset(KEY);
                return Ok(ReconcileResult::Done);
            };
            tracing::debug!("discovery of a peer failed: {error}");
            Ok(ReconcileResult::RequeueAfter(self.failures.next(KEY)))
        })
    }
}

const KEY: &str = "peers";

impl PeerProxy {
    /// What a peer serves.
    async fn fetch(&self, id: &str) -> Result<PeerApis, String> {
        let endpoint = match self.endpoints.endpoint(id).await {
            Ok(Some(endpoint)) => endpoint,
            other => {
                self.metrics.not_synced("hostport_resolution");
                let why = other.map_err(|error| error.to_string()).err();
                return Err(why.unwrap_or_else(|| "it does not say where it is".to_owned()));
            }
        };
        let mut apis = PeerApis::default();
        for path in ["/api", "/apis"] {
            let list = self.fetch_groups(&endpoint, path).await.inspect_err(|_| {
                self.metrics.not_synced("fetch_discovery");
            })?;
            for group in list.items_at(&["items"]) {
                apis.resources.extend(resources_of(group));
                // Compat: requests for the core group are sent on, but `/api` lists what is here.
                if !group.str_at(&["metadata", "name"]).is_empty() {
                    apis.groups.push(group.clone());
                }
            }
        }
        Ok(apis)
    }

    /// An `APIGroupDiscoveryList` of a peer, without what the peer knows of others.
    async fn fetch_groups(&self, endpoint: &HostPort, path: &str) -> Result<Value, String> {
        let mut headers = user_headers(&apiserver_user())?;
        headers.insert(ACCEPT, HeaderValue::from_static(ACCEPT_NO_PEER));
        headers.insert(PEER_PROXIED, HeaderValue::from_static("true"));
        let call = Call {
            method: Method::GET,
            url: Self::url(endpoint, path)?,
            headers,
            body: Bytes::new(),
            connect_to: None,
            deadline: Instant::now() + TIMEOUT,
            response_bytes_max: DISCOVERY_BYTES_MAX,
        };
        let response = self.client.call(call).await.map_err(|error| error.to_string())?;
        self.metrics.sent_on(response.status(), &GroupVersionResource::default());
        if response.status() != StatusCode::OK {
            let code = response.status().as_u16();
            return Err(format!("discovery request failed with status: {code}"));
        }
        if !is_aggregated(&response) {
            return Err(format!("{path} is not aggregated discovery"));
        }
        let ty = self.schema.by_name("io.k8s.api.apidiscovery.v2.APIGroupDiscoveryList");
        let ty = ty.expect("the types of discovery are built in");
        let options = DecodeOptions { strict: false };
        let decoded = json::decode(response.body(), &self.schema, ty, options);
        decoded.map(|decoded| decoded.value).map_err(|error| error.to_string())
    }
}

const ACCEPT_NO_PEER: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,\
     application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const TIMEOUT: Duration = Duration::from_secs(5);

fn apiserver_user() -> User {
    User {
        name: "system:apiserver".into(),
        uid: "system:apiserver".into(),
        groups: vec!["system:authenticated".into()],
        ..User::default()
    }
}

fn resources_of(group: &Value) -> HashSet<GroupVersionResource> {
    let mut found = HashSet::new();
    for version in group.items_at(&["versions"]) {
        for resource in version.items_at(&["resources"]) {
            found.insert(GroupVersionResource {
                group: group.str_at(&["metadata", "name"]).into(),
                version: version.str_at(&["version"]).into(),
                resource: resource.str_at(&["resource"]).into(),
            });
        }
    }
    found
}
