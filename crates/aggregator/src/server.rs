//! The front of the chain: discovery and OpenAPI of the whole, and the 404 for what no server owns.

use std::{
    sync::{
        Arc, LazyLock, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwapOption;
use codec::negotiate;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{
        ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, EXPIRES, HeaderName, IF_MODIFIED_SINCE,
        IF_NONE_MATCH, LAST_MODIFIED, LOCATION, USER_AGENT, VARY,
    },
};
use hyper::body::Incoming;
use meta::{ApiError, AuditRecord, GroupVersion, Query, RequestInfo};
use prometheus::{IntCounter, Registry};
use serve::{Body, Claims, Context, Delegate, Serving};
use tokio::sync::{Notify, watch};

use crate::{
    DiscoveryDocuments, DocumentRequest, DocumentResponse, OpenApi, Registration,
    byte_ranges::serve_content, remote_server::RemoteServer,
};

/// The aggregator: its documents are replaced whole when the table of served kinds changes.
#[derive(Default)]
pub struct Aggregator {
    documents: ArcSwapOption<DiscoveryDocuments>,
    openapi: ArcSwapOption<OpenApi>,
    /// The group-versions of other servers, once there may be any.
    registration: OnceLock<Arc<Registration>>,
    freshness: Freshness,
}

/// Lets readers wait for documents that are being rendered: a client that has created a definition finds it
/// in discovery.
#[derive(Default)]
struct Freshness {
    /// Changes of the served kinds so far.
    changes: AtomicU64,
    /// How many of them the documents have.
    published: watch::Sender<u64>,
    /// A reader waits.
    awaited: Notify,
}

/// A reader waits no longer than this, and gets the documents that there are.
const FRESH_WAIT_MAX: Duration = Duration::from_secs(1);

impl Freshness {
    async fn wait(&self) {
        let changes = self.changes.load(Ordering::Acquire);
        if *self.published.borrow() >= changes {
            return;
        }
        let mut published = self.published.subscribe();
        self.awaited.notify_one();
        let published = published.wait_for(|published| *published >= changes);
        if tokio::time::timeout(FRESH_WAIT_MAX, published).await.is_err() {
            tracing::warn!("discovery is behind the served kinds");
        }
    }
}

/// `aggregator_discovery_nopeer_requests_total`
static NO_PEER_REQUESTS: LazyLock<IntCounter> = LazyLock::new(|| {
    let help = "Requests for the discovery of this server alone.";
    IntCounter::new("aggregator_discovery_nopeer_requests_total", help).expect("valid names")
});

/// `aggregator_discovery_peer_aggregated_cache_hits_total`
static PEER_AGGREGATED_HITS: LazyLock<IntCounter> = LazyLock::new(|| {
    let help = "Requests for the discovery of all API servers.";
    let name = "aggregator_discovery_peer_aggregated_cache_hits_total";
    IntCounter::new(name, help).expect("valid names")
});

/// `aggregator_discovery_peer_aggregated_cache_misses_total`: the document is rendered when something has
/// changed, and not by the next request.
static PEER_AGGREGATED_MISSES: LazyLock<IntCounter> = LazyLock::new(|| {
    let help = "How often the discovery of all API servers was rendered.";
    let name = "aggregator_discovery_peer_aggregated_cache_misses_total";
    IntCounter::new(name, help).expect("valid names")
});

impl Aggregator {
    pub fn register_metrics(registry: &Registry) {
        for counter in [&NO_PEER_REQUESTS, &PEER_AGGREGATED_HITS, &PEER_AGGREGATED_MISSES] {
            registry.register(Box::new(LazyLock::force(counter).clone())).expect("registered once");
        }
    }

    /// The served kinds have changed; readers wait until they are published.
    pub fn mark_changed(&self) {
        self.freshness.changes.fetch_add(1, Ordering::Release);
    }

    /// The number of changes that documents have which are rendered from now on.
    pub fn changes(&self) -> u64 {
        self.freshness.changes.load(Ordering::Acquire)
    }

    /// Resolves when a reader waits for changes to be published.
    pub async fn awaited(&self) {
        self.freshness.awaited.notified().await;
    }

    /// From now on this is what is served. `changes` was read before the served kinds were.
    pub fn publish(&self, documents: DiscoveryDocuments, openapi: OpenApi, changes: u64) {
        if documents.knows_peers() {
            PEER_AGGREGATED_MISSES.inc();
        }
        self.documents.store(Some(Arc::new(documents)));
        self.openapi.store(Some(Arc::new(openapi)));
        self.freshness.published.send_replace(changes);
    }

    /// From now on requests about remote group-versions are proxied.
    pub fn connect(&self, registration: Arc<Registration>) {
        drop(self.registration.set(registration));
    }

    /// The server that answers a path about a remote group-version: its discovery, and its OpenAPI v3.
    fn remote(&self, path: &str) -> Option<Arc<RemoteServer>> {
        let path = path.trim_matches('/');
        let path = match path.strip_prefix("openapi/v3/") {
            // Converted from v2, which the server does not know.
            Some(key) if self.openapi.load().as_ref().is_some_and(|known| known.has(key)) => {
                return None;
            }
            Some(key) => key,
            None => path,
        };
        let parts: Vec<&str> = path.split('/').collect();
        let group_version = match parts[..] {
            ["api", version] => GroupVersion::new("", version),
            ["apis", group, version] => GroupVersion::new(group, version),
            _ => return None,
        };
        self.registration.get()?.find(&group_version)
    }

    /// What OpenAPI tells at the moment.
    pub fn openapi_documents(&self) -> Option<Arc<OpenApi>> {
        self.openapi.load_full()
    }

    async fn answer(
        &self,
        path: &str,
        request: &Request<Incoming>,
        record: &AuditRecord,
    ) -> Option<Result<Response<Body>, ApiError>> {
        let (method, headers) = (request.method(), request.headers());
        let mut has_ranges = false;
        let answer = match self.discovery(path, request.uri().query(), headers) {
            Some(answer) => {
                if record.wants_response_object() {
                    self.record(path, &answer, record);
                }
                answer
            }
            None => {
                has_ranges = true;
                self.openapi(path, request.uri().query(), headers).await?
            }
        };
        // Compat: what is about groups or custom resources, and OpenAPI, answers a POST like a GET.
        let documents = self.documents.load();
        let is_read_only = documents.as_ref().is_some_and(|all| all.is_read_only(path));
        if *method != Method::GET && is_read_only {
            return Some(Err(ApiError::MethodNotAllowed));
        }
        Some(answer.map(|answer| {
            let body = answer.body.clone();
            let response = response(answer);
            if has_ranges { serve_content(headers, response, &body) } else { response }
        }))
    }

    /// Records a document in its event: as JSON, whatever the client gets.
    fn record(&self, path: &str, sent: &Result<DocumentResponse, ApiError>, record: &AuditRecord) {
        let Some(sent) = sent.as_ref().ok().filter(|sent| sent.code == 200) else { return };
        let parameters = sent.content_type.split_once(';').map_or("", |(_, parameters)| parameters);
        let accept = format!("application/json;{parameters}");
        let documents = self.documents.load();
        let json = documents.as_ref().and_then(|all| all.answer(path, Some(&accept), None));
        if let Some(Ok(json)) = json {
            record.response_object(json.body.trim_ascii_end().to_vec());
        }
    }

    /// Whether the group is served, but not in this version.
    fn is_missing_version(&self, prefix: &str, group: &str, version: &str) -> bool {
        let documents = self.documents.load();
        let Some(documents) = documents.as_ref() else { return false };
        if prefix == "api" {
            return !documents.has(&format!("/api/{version}"));
        }
        documents.has(&format!("/apis/{group}"))
            && !documents.is_custom(group)
            && !documents.has(&format!("/apis/{group}/{version}"))
    }

    fn discovery(
        &self,
        path: &str,
        query: Option<&str>,
        headers: &HeaderMap,
    ) -> Option<Result<DocumentResponse, ApiError>> {
        let documents = self.documents.load();
        let (accept, agent) = (text(headers, ACCEPT), text(headers, USER_AGENT));
        let answer = documents.as_ref()?.answer(path, accept, text(headers, IF_NONE_MATCH))?;
        if accept.is_some_and(|accept| accept.contains("profile=nopeer")) {
            NO_PEER_REQUESTS.inc();
        } else if answer.as_ref().is_ok_and(|answer| answer.of_all_peers) {
            PEER_AGGREGATED_HITS.inc();
        }
        let query = Query::parse(query.unwrap_or_default()).unwrap_or_default();
        let pretty = negotiate::is_pretty(query.get("pretty"), agent)
            || accept.is_some_and(|accept| accept.contains("pretty=1"));
        Some(answer.map(|answer| if pretty { indented(answer) } else { answer }))
    }

    async fn openapi(
        &self,
        path: &str,
        query: Option<&str>,
        headers: &HeaderMap,
    ) -> Option<Result<DocumentResponse, ApiError>> {
        if !path.starts_with("/openapi/") {
            return None;
        }
        let openapi = self.openapi.load_full()?;
        let query = match Query::parse(query.unwrap_or_default()) {
            Ok(query) => query,
            Err(error) => return Some(Err(error)),
        };
        let (path, headers) = (path.to_owned(), headers.clone());
        // Rendering takes a while the first time; other requests go on meanwhile.
        let answer = tokio::task::spawn_blocking(move || {
            let question = DocumentRequest {
                path: &path,
                hash: query.get("hash"),
                accept: text(&headers, ACCEPT),
                if_none_match: text(&headers, IF_NONE_MATCH),
                if_modified_since: text(&headers, IF_MODIFIED_SINCE),
            };
            openapi.answer(question, SystemTime::now())
        });
        answer.await.map_err(ApiError::internal).transpose()
    }
}

/// For people.
fn indented(mut answer: DocumentResponse) -> DocumentResponse {
    if answer.content_type.starts_with("application/json") && !answer.body.is_empty() {
        answer.body = codec::json::indent(answer.body.trim_ascii_end()).into();
    }
    answer
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

impl Delegate for Aggregator {
    fn name(&self) -> &'static str {
        "aggregator"
    }

    fn serve<'a>(&'a self, cx: &'a mut Context, request: Request<Incoming>) -> Serving<'a> {
        Box::pin(async move {
            if !cx.info.is_resource
                && let Some(server) = self.remote(&cx.info.path)
            {
                return server.proxy(cx, request).await;
            }
            if !cx.info.is_resource {
                self.freshness.wait().await;
                let answer = self.answer(&cx.info.path, &request, &cx.audit.record).await;
                if let Some(answer) = answer {
                    return answer;
                }
            }
            Err(self.not_found(&cx.info))
        })
    }
}

impl Aggregator {
    /// Discovery and OpenAPI of the whole.
    pub fn claims() -> Claims {
        let paths = vec!["/api", "/api/*", "/apis", "/apis/*", "/openapi/*"];
        Claims { paths, ..Claims::default() }
    }

    /// The 404 for what no server claims: a `Status` where the group is served in other versions.
    fn not_found(&self, info: &RequestInfo) -> ApiError {
        let missing = if info.is_resource {
            self.is_missing_version(&info.prefix, &info.group, &info.version)
        } else {
            let parts: Vec<&str> = info.path.trim_matches('/').split('/').collect();
            match parts[..] {
                ["api", version] => self.is_missing_version("api", "", version),
                ["apis", group, version] => self.is_missing_version("apis", group, version),
                _ => false,
            }
        };
        if missing { ApiError::NotServed } else { ApiError::UnknownPath }
    }

    /// The paths that the index lists.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        if let Some(documents) = &*self.documents.load() {
            paths.extend(documents.paths().map(str::to_owned));
            paths.push("/apis/".to_owned());
        }
        if self.openapi.load().is_some() {
            paths.extend(OpenApi::PATHS.map(str::to_owned));
        }
        paths
    }
}

fn response(answer: DocumentResponse) -> Response<Body> {
    let mut response = Response::new(Body::full(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::OK);
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: Option<&str>| {
        if let Some(Ok(value)) = value.filter(|text| !text.is_empty()).map(HeaderValue::from_str) {
            headers.insert(name, value);
        }
    };
    set(CONTENT_TYPE, Some(answer.content_type));
    set(ETAG, answer.etag.as_deref());
    set(CACHE_CONTROL, answer.cache_control);
    set(LAST_MODIFIED, answer.last_modified.as_deref());
    set(EXPIRES, answer.expires.as_deref());
    set(LOCATION, answer.location.as_deref());
    // Compat: a line for each.
    for name in answer.vary.into_iter().flat_map(|vary| vary.split(", ")) {
        headers.append(VARY, HeaderValue::from_static(name));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn readers_wait_for_changes_to_be_published() {
        let freshness = Arc::new(Freshness::default());
        // Nothing has changed.
        freshness.wait().await;
        freshness.changes.fetch_add(1, Ordering::Release);
        let reader = tokio::spawn({
            let freshness = freshness.clone();
            async move { freshness.wait().await }
        });
        // The publisher learns that it is waited for.
        freshness.awaited.notified().await;
        assert!(!reader.is_finished());
        freshness.published.send_replace(1);
        reader.await.expect("the reader goes on");
        // A publisher that hangs does not hold up readers for ever.
        freshness.changes.fetch_add(1, Ordering::Release);
        freshness.wait().await;
    }
}
