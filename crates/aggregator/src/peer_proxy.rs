//! Requests for resources that this server does not have, sent on to an API server of the same cluster that
//! has them: kube-apiserver's mixed version proxy (gate UnknownVersionInteroperabilityProxy).
//!
//! Peers are known by their identity leases, what they serve by their discovery (`peer_discovery`), and
//! where they are by leases in the store, which no client of the API can write. A request is sent on with the
//! front proxy's certificate, in the name of its user, and marked: a peer that does not have the
//! resource either answers itself, so that no request goes in circles.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use client::{Client, Config, Dial, HostPort, Identity, Limits, Tls, Trust};
use controllers::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use meta::{ApiError, GroupVersion, GroupVersionResource, RequestInfo, Value};
use parking_lot::Mutex;
use prometheus::{IntCounterVec, Opts, Registry};
use proxy::{Options, Redirects, Target, forward, is_upgrade};
use schema::Schema;
use serve::{Body, Context, Delegate, Serving};
use tokio::{sync::Notify, time::Instant};

use crate::{
    ServedGroupVersion,
    proxy_handler::{refusal, remove_credentials, sent_path},
    user_headers::user_headers,
};

/// Where peers are: kube-apiserver's `peerserverleases`.
pub trait PeerEndpoints: Send + Sync + 'static {
    /// None: a server that does not run any more, or not yet.
    fn endpoint<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<HostPort>, ApiError>>;
}

/// How peers are reached.
pub struct PeerSettings {
    /// The identity of this server.
    pub id: String,
    /// `--peer-ca-file`, which is read again when it changes.
    pub ca_file: PathBuf,
    /// `--proxy-client-cert-file`: by which peers know this server.
    pub identity: Identity,
    pub dial: Arc<dyn Dial>,
    pub endpoints: Arc<dyn PeerEndpoints>,
}

pub struct PeerProxy {
    pub(crate) id: String,
    pub(crate) client: Client,
    pub(crate) endpoints: Arc<dyn PeerEndpoints>,
    pub(crate) schema: Arc<Schema>,
    /// The built-in resources of this server.
    local: HashSet<GroupVersionResource>,
    state: Mutex<State>,
    /// What peers serve, without the group-versions that this server answers for.
    peers: ArcSwap<Peers>,
    /// The group-versions of custom resources and of remote APIServices, and what to call when peers change.
    aggregator: OnceLock<(ExcludedGroupVersions, OnChange)>,
    /// From here on requests are sent on.
    synced: AtomicBool,
    /// A group-version is gone: the reaper has something to wait for.
    gone: Notify,
    pub(crate) metrics: PeerMetrics,
}

type ExcludedGroupVersions = Box<dyn Fn() -> BTreeSet<GroupVersion> + Send + Sync>;
type OnChange = Box<dyn Fn() + Send + Sync>;

/// By the identities of the servers.
pub(crate) type Peers = BTreeMap<String, Arc<PeerApis>>;

/// What a peer serves.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PeerApis {
    pub(crate) resources: HashSet<GroupVersionResource>,
    /// `APIGroupDiscovery` of all groups but the core group, in the peer's order.
    pub(crate) groups: Vec<Value>,
}

#[derive(Default)]
struct State {
    /// As the peers tell.
    told: Peers,
    /// Group-versions that come from objects in the store, which every server learns of by itself: what a peer
    /// said of them some time ago must not keep a deleted definition alive.
    excluded: BTreeSet<GroupVersion>,
    /// The same of deleted objects: until when.
    deleted: BTreeMap<GroupVersion, Instant>,
}

/// Compat: by when every peer has learned of a deleted definition.
const EXCLUSION_GRACE_PERIOD: Duration = Duration::from_mins(5);

impl PeerProxy {
    pub fn new(
        settings: PeerSettings,
        served: &[ServedGroupVersion],
        schema: Arc<Schema>,
    ) -> Result<Arc<Self>, String> {
        let PeerSettings { id, ca_file, identity, dial, endpoints } = settings;
        let config = Config {
            tls: Tls {
                trust: Trust::File(ca_file),
                server_name: Some(SERVER_NAME.to_owned()),
                identity: Some(identity),
                ..Tls::default()
            },
            dial,
            limits: Limits::for_proxy(),
            ..Config::default()
        };
        let client = Client::new(config).map_err(|error| error.to_string())?;
        Ok(Arc::new(Self {
            id,
            client,
            endpoints,
            schema,
            local: served.iter().flat_map(resources_of).collect(),
            state: Mutex::default(),
            peers: ArcSwap::default(),
            aggregator: OnceLock::new(),
            synced: AtomicBool::new(false),
            gone: Notify::new(),
            metrics: PeerMetrics::default(),
        }))
    }

    /// `excluded` are the group-versions of custom resources and of remote APIServices; `changed` is called when
    /// what peers serve has changed.
    pub fn connect(
        &self,
        excluded: impl Fn() -> BTreeSet<GroupVersion> + Send + Sync + 'static,
        changed: impl Fn() + Send + Sync + 'static,
    ) {
        drop(self.aggregator.set((Box::new(excluded), Box::new(changed))));
    }

    /// From now on requests are sent on.
    pub fn open(&self) {
        self.sync_exclusions();
        self.synced.store(true, Ordering::Release);
    }

    /// Definitions or APIServices have changed.
    pub fn sync_exclusions(&self) {
        let Some((excluded, _)) = self.aggregator.get() else { return };
        self.exclude(excluded());
    }

    fn exclude(&self, excluded: BTreeSet<GroupVersion>) {
        let mut state = self.state.lock();
        if state.excluded == excluded {
            return;
        }
        let until = Instant::now() + EXCLUSION_GRACE_PERIOD;
        let before = std::mem::replace(&mut state.excluded, excluded);
        let gone: Vec<_> = before.difference(&state.excluded).cloned().collect();
        state.deleted.extend(gone.into_iter().map(|group_version| (group_version, until)));
        self.filter(&state);
        self.gone.notify_one();
    }

    /// Runs until the server stops: a deleted group-version may be a peer's after a while.
    pub(crate) async fn reap(&self) {
        loop {
            let next = self.state.lock().deleted.values().min().copied();
            let Some(next) = next else {
                self.gone.notified().await;
                continue;
            };
            tokio::time::sleep_until(next).await;
            let mut state = self.state.lock();
            let now = Instant::now();
            let State { told, deleted, .. } = &mut *state;
            let expired: BTreeMap<_, _> =
                deleted.extract_if(.., |_, until| *until <= now).collect();
            // Peers have deleted it as well; what they said before that is forgotten.
            let is_expired = |gone: &GroupVersion| expired.contains_key(gone);
            for apis in told.values_mut() {
                *apis = Arc::new(apis.without(&is_expired));
            }
            self.filter(&state);
        }
    }

    /// This is what peers serve from now on.
    pub(crate) fn replace(&self, told: Peers) {
        let mut state = self.state.lock();
        state.told = told;
        self.filter(&state);
    }

    /// The lock is held, so that two changes at once do not leave the older one behind.
    fn filter(&self, state: &State) {
        let excluded = |group_version: &GroupVersion| {
            state.excluded.contains(group_version) || state.deleted.contains_key(group_version)
        };
        let peers: Peers = state
            .told
            .iter()
            .map(|(id, apis)| (id.clone(), Arc::new(apis.without(&excluded))))
            .collect();
        let before = self.peers.swap(Arc::new(peers));
        if *before != **self.peers.load()
            && let Some((_, changed)) = self.aggregator.get()
        {
            changed();
        }
    }

    /// The groups that peers serve, by their identities.
    pub(crate) fn groups(&self) -> BTreeMap<String, Vec<Value>> {
        let peers = self.peers.load();
        peers.iter().map(|(id, apis)| (id.clone(), apis.groups.clone())).collect()
    }

    /// A URL of a peer.
    pub(crate) fn url(HostPort { host, port }: &HostPort, path: &str) -> Result<Uri, String> {
        let authority =
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let url = Uri::builder().scheme("https").authority(authority).path_and_query(path);
        url.build().map_err(|error| error.to_string())
    }

    /// One of the peers that have a resource, and can be reached.
    async fn locate(&self, wanted: &GroupVersionResource) -> Option<HostPort> {
        let peers = self.peers.load_full();
        let having = peers.iter().filter(|(_, apis)| apis.resources.contains(wanted));
        let mut located = Vec::new();
        for (id, _) in having {
            match self.endpoints.endpoint(id).await {
                Ok(endpoint) => located.extend(endpoint),
                Err(error) => tracing::error!(peer = id, "cannot find a peer: {error}"),
            }
        }
        let chosen = getrandom::u32().unwrap_or_default() as usize % located.len().max(1);
        (!located.is_empty()).then(|| located.swap_remove(chosen))
    }

    async fn send_on(
        &self,
        cx: &mut Context,
        mut request: Request<Incoming>,
    ) -> Result<Response<Body>, ApiError> {
        let wanted = resource_of(&cx.info);
        // Authorized as this resource, and read by the peer as whatever is left when they are resolved.
        if cx.info.path.split('/').any(|part| matches!(part, "." | "..")) {
            return Err(ApiError::bad_request("the path has a segment . or .."));
        }
        let Some(peer) = self.locate(&wanted).await else {
            self.metrics.failed("endpoint_resolution", &wanted);
            return Err(ApiError::ServiceUnavailable(NO_ENDPOINT.to_owned()));
        };
        let mut headers = match user_headers(&cx.user) {
            Ok(headers) => headers,
            Err(why) => {
                self.metrics.failed("proxy_transport", &wanted);
                return Err(ApiError::internal(why));
            }
        };
        headers.insert(PEER_PROXIED, HeaderValue::from_static("true"));
        // The peer audits under the same ID.
        if let Ok(id) = HeaderValue::from_str(&cx.audit.id) {
            headers.insert("audit-id", id);
        }
        remove_credentials(&mut request);
        let path = sent_path(&cx.info.path, request.uri().query());
        let url = Self::url(&peer, &path).map_err(ApiError::bad_request)?;
        let options = Options {
            headers,
            client_address: Some(cx.peer.address.ip()),
            redirects: Redirects::Pass,
            ..Options::default()
        };
        if cx.info.verb == "watch" || is_upgrade(&request) {
            // It waits for the peer from now on.
            cx.seat = None;
        }
        tracing::info!("Proxying request for {path} to {}:{}", peer.host, peer.port);
        let target = Target { client: self.client.clone(), url, connect_to: None };
        let response = forward(request, target, options).await.unwrap_or_else(|error| {
            tracing::error!("Error while proxying request to destination apiserver: {error}");
            refusal(StatusCode::SERVICE_UNAVAILABLE, &error.to_string())
        });
        self.metrics.sent_on(response.status(), &wanted);
        Ok(response)
    }
}

/// The name that the certificates of all API servers have.
const SERVER_NAME: &str = "kubernetes.default.svc";
const NO_ENDPOINT: &str = "Error getting ip and port info of the remote server while proxying";
/// Compat: a request that has it was sent on once and is answered here.
pub(crate) const PEER_PROXIED: HeaderName = HeaderName::from_static("x-kubernetes-peer-proxied");

fn resources_of(served: &ServedGroupVersion) -> impl Iterator<Item = GroupVersionResource> {
    served.resources.iter().map(|facts| facts.group_version_resource())
}

fn resource_of(info: &RequestInfo) -> GroupVersionResource {
    GroupVersionResource {
        group: info.group.clone(),
        version: info.version.clone(),
        resource: info.resource.clone(),
    }
}

impl serve::PeerProxy for PeerProxy {
    fn claims(&self, info: &RequestInfo, headers: &HeaderMap) -> bool {
        if !info.is_resource || !self.synced.load(Ordering::Acquire) {
            return false;
        }
        let peers = self.peers.load();
        if peers.is_empty() || headers.get(PEER_PROXIED).is_some_and(|sent| sent == "true") {
            return false;
        }
        let wanted = resource_of(info);
        !self.local.contains(&wanted) && peers.values().any(|apis| apis.resources.contains(&wanted))
    }
}

impl Delegate for PeerProxy {
    fn name(&self) -> &'static str {
        "peer-proxy"
    }

    fn serve<'a>(&'a self, cx: &'a mut Context, request: Request<Incoming>) -> Serving<'a> {
        Box::pin(self.send_on(cx, request))
    }
}

impl PeerApis {
    fn without(&self, excluded: &dyn Fn(&GroupVersion) -> bool) -> Self {
        let is_excluded = |group: &str, version: &str| excluded(&GroupVersion::new(group, version));
        let resources = self.resources.iter().filter(|one| !is_excluded(&one.group, &one.version));
        let groups = self.groups.iter().filter_map(|group| {
            let name = group.str_at(&["metadata", "name"]).to_owned();
            let mut group = group.clone();
            let versions = group.at_mut(&["versions"]).and_then(Value::as_array_mut)?;
            versions.retain(|version| !is_excluded(&name, version.str_at(&["version"])));
            let is_left = !versions.is_empty();
            is_left.then_some(group)
        });
        Self { resources: resources.cloned().collect(), groups: groups.collect() }
    }
}

/// By kube-apiserver's names. Labels are those of resources that peers have said they serve.
pub(crate) struct PeerMetrics {
    rerouted: IntCounterVec,
    proxy_errors: IntCounterVec,
    sync_errors: IntCounterVec,
}

impl Default for PeerMetrics {
    fn default() -> Self {
        let counter = |name: &str, help: &str, labels: &[&str]| {
            IntCounterVec::new(Opts::new(name, help), labels).expect("valid names")
        };
        Self {
            rerouted: counter(
                "apiserver_rerouted_request_total",
                "Requests that were sent on to a peer; without a group, version and resource: \
                 requests for its discovery.",
                &["code", "group", "version", "resource"],
            ),
            proxy_errors: counter(
                "apiserver_peer_proxy_errors_total",
                "Requests that could not be sent on to a peer.",
                &["type", "group", "version", "resource"],
            ),
            sync_errors: counter(
                "apiserver_peer_discovery_sync_errors_total",
                "Failures to learn what peers serve.",
                &["type"],
            ),
        }
    }
}

impl PeerMetrics {
    pub(crate) fn register(&self, registry: &Registry) {
        for counter in [&self.rerouted, &self.proxy_errors, &self.sync_errors] {
            registry.register(Box::new(counter.clone())).expect("registered once");
        }
    }

    pub(crate) fn sent_on(&self, code: StatusCode, what: &GroupVersionResource) {
        let GroupVersionResource { group, version, resource } = what;
        self.rerouted.with_label_values(&[code.as_str(), group, version, resource]).inc();
    }

    fn failed(&self, why: &str, what: &GroupVersionResource) {
        let GroupVersionResource { group, version, resource } = what;
        self.proxy_errors.with_label_values(&[why, group, version, resource]).inc();
    }

    pub(crate) fn not_synced(&self, why: &str) {
        self.sync_errors.with_label_values(&[why]).inc();
    }
}

impl PeerProxy {
    pub fn register_metrics(&self, registry: &Registry) {
        self.metrics.register(registry);
    }
}
